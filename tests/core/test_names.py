"""Python is as easy as the command line: names, comparisons, folders, and problems of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedcmoo import FSMGDA, FedAvg, FedCMOO, compare, fit
from fedcmoo.callbacks import ProgressBar
from fedcmoo.cli import app
from fedcmoo.compression import TopK
from fedcmoo.config import RunConfig, saved
from fedcmoo.engines import Local
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.gram import Exact, OneWay
from fedcmoo.history import read_history
from fedcmoo.methods import Method
from fedcmoo.optimizers import Adam
from fedcmoo.privacy.robust import TrimmedMean
from fedcmoo.settings import SettingsError
from fedcmoo.weights import MinNorm
from tests.core.problems import classification

OWN = """
from tests.core.problems import classification

def problem(seed):
    return classification(seed=seed)

ready = classification()
nothing = 3
"""


def test_names_stand_for_objects_with_their_defaults() -> None:
    method = FedCMOO(gram="exact", weights="min-norm", optimizer="adam")
    assert method == FedCMOO(gram=Exact(), weights=MinNorm(), optimizer=Adam())
    assert OneWay(compressor="top-k") == OneWay(compressor=TopK())
    assert RunConfig(problem="two-digits", engine="local") == RunConfig(problem=TwoDigits(), engine=Local())
    named, built = (fit(classification(), method, 1, engine="local") for method in ("fedavg", FedAvg()))
    assert [r.without_time() for r in named.history] == [r.without_time() for r in built.history]


def test_wrong_names_and_classes_are_told() -> None:
    with pytest.raises(SettingsError, match="method 'fedcmo' is not known; did you mean 'fedcmoo'"):
        fit(classification(), "fedcmo")
    with pytest.raises(TypeError, match=r"method must be an object such as FedAvg\(\), but got the class FedAvg"):
        fit(classification(), FedAvg)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"weights must be an object such as MinNorm\(\)"):
        FedCMOO(weights=MinNorm)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="engine 'cloud' is not known"):
        fit(classification(), FedAvg(), engine="cloud")
    with pytest.raises(TypeError, match=r"problem must be an object such as Problem\(model"):
        fit(FedAvg(), "fedavg")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"privacy": 8.0}, r"privacy must be an object such as DifferentialPrivacy\(epsilon=8\.0\), but got 8\.0"),
        ({"acceptance": 50.0}, r"acceptance must be an object such as BoundedRise\(\), but got 50\.0"),
        ({"stages": TrimmedMean()}, r"stages must be a list such as \[TrimmedMean\(\)\], but got TrimmedMean\("),
        ({"callbacks": ProgressBar()}, r"callbacks must be a list such as \[ProgressBar\(\)\], but got <"),
        ({"callbacks": [ProgressBar]}, r"callbacks must be a list such as \[ProgressBar\(\)\], but got \["),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fit(classification(), FedAvg(), 1, **arguments)


def test_acceptance_has_names() -> None:
    with pytest.raises(ValueError, match="a bound on the rise of the validation loss needs validation data"):
        fit(classification(), FedAvg(), 1, acceptance="bounded-rise")


@pytest.mark.usefixtures("curves")
def test_a_folder_has_what_the_command_line_leaves(tmp_path: Path) -> None:
    result = fit(classification(), FedAvg(local_steps=2), 3, folder=tmp_path, seed=7, engine=Local())
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.toml", "history.jsonl", "curves.png", "model.safetensors", "result.json"} <= names
    config = tomllib.loads((tmp_path / "config.toml").read_text())
    assert config["method"]["name"] == "fedavg"
    assert (config["method"]["local_steps"], config["seed"], config["rounds"]) == (2, 7, 3)
    assert json.loads((tmp_path / "result.json").read_text())["scores"] == result.scores
    assert repr(result) == "<Result: FedAvg on classification, 3 rounds>"
    assert len(repr(classification())) < 100  # not the clients' data
    assert "<td" in result._repr_html_()
    with pytest.raises(SettingsError, match="not a ready-made one: continue it in Python"):
        saved(tmp_path)


def test_a_comparison_has_a_result_for_each_method_and_seed(tmp_path: Path) -> None:
    methods: list[Method | str] = ["fedavg", FSMGDA(client_lr=0.1, local_steps=2)]
    comparison = compare(classification(), methods, seeds=[0, 1], rounds=2, folder=tmp_path, engine="local")
    assert {label: [r.seed for r in found] for label, found in comparison.results.items()} == {
        "FedAvg": [0, 1],
        "FSMGDA": [0, 1],
    }
    alone = fit(classification(), FSMGDA(client_lr=0.1, local_steps=2), 2, seed=1, engine=Local())
    assert comparison.results["FSMGDA"][1].scores == alone.scores
    assert "±" in str(comparison)
    assert (tmp_path / "comparison.png").exists()
    before = {file: file.read_bytes() for file in tmp_path.rglob("history.jsonl")}
    again = compare(classification(), methods, seeds=[0, 1], rounds=2, folder=tmp_path, engine="local")
    assert again.results["FedAvg"][0].scores == comparison.results["FedAvg"][0].scores
    assert {file: file.read_bytes() for file in before} == before


def test_problems_may_depend_on_the_seed_and_methods_have_labels() -> None:
    methods = {"K = 1": FedAvg(local_steps=1), "K = 3": FedAvg(local_steps=3)}
    comparison = compare(lambda seed: classification(seed=seed), methods, [3], 1, engine="local")
    own = fit(classification(seed=3), FedAvg(local_steps=3), 1, seed=3, engine=Local())
    assert comparison.results["K = 3"][0].scores == own.scores
    with pytest.raises(ValueError, match="given by label where two are FedAvg"):
        compare(classification(), ["fedavg", FedAvg(local_steps=1)])
    with pytest.raises(ValueError, match="at least one method and one seed"):
        compare(classification(), [])


def test_the_command_line_runs_and_resumes_a_problem_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks.py").write_text(OWN)
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.append({root!r}); from fedcmoo.cli import app; app()"
    words = ["run", "tasks:problem", "-m", "fedavg", "--rounds", "2", "--engine", "local"]
    subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, timeout=120, check=True)

    def fedcmoo(*words: str) -> int | str | None:
        with pytest.raises(SystemExit) as end:
            app(words)
        return end.value.code

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "runs/tasks-problem-fedavg-seed0"
    assert fedcmoo("resume", str(folder), "--rounds", "3") == 0
    alone = fit(classification(), FedAvg(), 3, engine=Local())
    assert [r.weights for r in read_history(folder / "history.jsonl")] == [r.weights for r in alone.history]
    assert read_history(folder / "history.jsonl")[-1].test == alone.history[-1].test
    for source, message in (
        ("tasks:nothing", "must be or return a fedcmoo.Problem, but is int"),
        ("tasks:other", "the module tasks must define 'other', but does not"),
        ("absent:problem", "absent must be a module in"),
        ("tasks:", "must be given as MODULE:NAME"),
    ):
        assert fedcmoo("run", source) == 2
        assert message in " ".join(capfd.readouterr().err.split())
    comparing = ("compare", "tasks:problem", "-m", "fedavg", "--seeds", "0", "--rounds", "1", "--engine", "local")
    assert fedcmoo(*comparing) == 0
    (tmp_path / "tasks.py").write_text(OWN.replace("seed=seed", "seed=seed, clients=3"))
    monkeypatch.delitem(sys.modules, "tasks")
    assert fedcmoo(*comparing) != 0  # the run that is there is of another problem
    assert "holds another run" in capfd.readouterr().err
    monkeypatch.delitem(sys.modules, "tasks")
