"""Settings and configurations: TOML to objects and back, and errors that help."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedcmoo import fit
from fedcmoo.config import RunConfig, preset
from fedcmoo.engines import Local
from fedcmoo.experiments import PROBLEMS
from fedcmoo.gram import Sketch
from fedcmoo.methods import METHODS, FedAvg, FedCMOO
from fedcmoo.methods.fedcmoo_t import FedCMOOT
from fedcmoo.settings import SettingsError, from_registry, merge, read_toml, write_toml
from fedcmoo.weights import FindWeights
from tests.core.problems import quadratics


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_preset_survives_toml(problem: str, method: str) -> None:
    for small in (False, True):
        config = RunConfig.from_table(preset(problem, method, small))
        text = write_toml(config.to_table())
        assert RunConfig.from_table(tomllib.loads(text)) == config
        assert tomllib.loads(text)["method"]["name"] == method


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"round": 3}, "unknown setting 'round'; did you mean 'rounds'"),
        (
            {"method": {"name": "fedcmoo", "client_rl": 1}},
            "unknown setting 'method.client_rl' of fedcmoo; did you mean 'client_lr'",
        ),
        (
            {"method": {"name": "fsmgda", "gram": "exact"}},
            "unknown setting 'method.gram' of fsmgda; known are batch_size",
        ),
        ({"method": {"name": "mgda", "local_steps": 3}}, "MGDA has no local_steps"),
        ({"method": {"name": "mgda", "client_lr": 0.1}}, "MGDA has no client_lr"),
        ({"engine": {"name": "local", "device": "gpu0"}}, "device must be one of this machine's"),
        ({"method": "fedcmo"}, "method 'fedcmo' is not known; did you mean 'fedcmoo'"),
        ({"method": {"name": "fedcmoo", "gram": "exacd"}}, "method.gram 'exacd' is not known; did you mean 'exact'"),
        ({"rounds": "many"}, "rounds must be a whole number, but got 'many'"),
        ({"rounds": True}, "rounds must be a whole number, but got True"),
        ({"method": {"name": "fedavg", "weights": 3}}, "method.weights must be a list"),
        ({"method": {"name": "fedcmoo", "client_lr": -1}}, "client_lr must be positive"),
        (
            {"problem": {"name": "two-digits", "partition": "odd"}},
            "problem.partition must be one of 'dirichlet', 'by-label', 'iid'",
        ),
        ({"method": {"name": "fedcmoo", "gram": "none"}}, "method.gram 'none' is not known"),
        ({"method": 7}, "method must be a name or a table with a name"),
    ],
)
def test_mistakes_say_where_and_what(table: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace(".", r"\.").replace("[", r"\[")):
        RunConfig.from_table(table)


def test_numpy_numbers_are_settings_like_any_other(tmp_path: Path) -> None:
    one, two, three, weights = np.int64(1), np.int64(2), np.int64(3), np.array([0.25, 0.75])
    method = FedAvg(client_lr=np.float64(0.1), local_steps=two, weights=weights)  # type: ignore[arg-type]
    fit(quadratics(), method, one, seed=three, folder=tmp_path, engine=Local())  # type: ignore[arg-type]
    table = read_toml(tmp_path / "config.toml")
    assert (table["rounds"], table["seed"]) == (1, 3)
    written = from_registry(METHODS, table["method"], "method")
    assert written == FedAvg(client_lr=0.1, local_steps=2, weights=(0.25, 0.75))
    plain = FedAvg(client_lr=0.1, local_steps=2, weights=method.weights)
    assert len(fit(quadratics(), plain, 2, seed=3, folder=tmp_path, resume=True, engine=Local()).history) == 2
    with pytest.raises(ValueError, match="local_steps must be a whole number of at least 1, but got '5'"):
        FedAvg(local_steps="5")  # type: ignore[arg-type]


def test_none_is_written_and_read() -> None:
    config = RunConfig.from_table({"method": {"name": "fedcmoo", "batch_size": "none"}})
    assert config.method.batch_size is None
    assert RunConfig.from_table(tomllib.loads(write_toml(config.to_table()))) == config


def test_settings_without_a_name_are_those_of_the_default_object() -> None:
    method = RunConfig.from_table({"method": {"name": "fedcmoo", "gram": {"budget": 0.5}}})
    assert method.method == FedCMOO(gram=Sketch(budget=0.5))
    theory = RunConfig.from_table({"method": {"name": "fedcmoo-t", "weights": {"beta": 0.2}}}).method
    assert theory == FedCMOOT(weights=FindWeights(beta=0.2, iterations=1, scale_free=False))


def test_merge_keeps_settings_of_the_same_object_only() -> None:
    base = {"method": {"name": "fedcmoo", "client_lr": 0.1}, "rounds": 3}
    assert merge(base, {"method": {"server_lr": 2}}) == {
        "method": {"name": "fedcmoo", "client_lr": 0.1, "server_lr": 2},
        "rounds": 3,
    }
    assert merge(base, {"method": "fsmgda"})["method"] == {"name": "fsmgda"}
    assert merge({"gram": "exact"}, {"gram": {"x": 1}}) == {"gram": {"name": "exact", "x": 1}}


@pytest.mark.parametrize("text", ["two\nlines", "tab\t", "\0\x1b\x7f", 'quote" and \\', "ü😀", "\r"])
def test_any_text_survives_toml(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(write_toml({"data": text}))
    assert read_toml(tmp_path / "run.toml") == {"data": text}


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        read_toml(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")
