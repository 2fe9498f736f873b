"""The comparison of weighting rules: its numbers by hand, runs that are found again, and runs that diverge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedcmoo.bench.weights import FEDAVG, SUITE, Suite, WeightsBench
from fedcmoo.callbacks import Callback
from fedcmoo.cli import app
from fedcmoo.config import variants
from fedcmoo.experiments import PROBLEMS
from fedcmoo.runs import Runs

BY_HAND = WeightsBench(
    objectives={"p": ["a", "b"], "q": ["c"]},
    losses={
        "p": {FEDAVG: np.array([[1.0, 4.0]]), "good": np.array([[1.0, 2.0]]), "bad": np.array([[3.0, 1.0]])},
        "q": {FEDAVG: np.array([[2.0]]), "good": np.array([[2.0]]), "bad": np.array([[np.inf]])},
    },
    alone={"p": np.array([[1.0, 1.0]]), "q": np.array([[1.0]])},
)


def test_numbers_by_hand() -> None:
    assert BY_HAND.change("p", "good").tolist() == [[0.0, -50.0]]
    assert BY_HAND.worst_against_alone("p", FEDAVG).tolist() == [4.0]
    # Ranks of "good": 1.5 of a, 2 of b; 1.5 of c.
    assert BY_HAND.mean_rank("good") == pytest.approx(((1.5 + 2) / 2 + 1.5) / 2)
    assert BY_HAND.rules == ["good", FEDAVG, "bad"]
    good, _, bad = BY_HAND.overview().rows
    assert good == ["good", "1.6", "-25.0", "+0.0", "+0.0", "1 of 2"]
    assert bad[3:] == ["diverged", "diverged", "1 of 2"]
    assert BY_HAND.summary()["losses"]["q"] == {FEDAVG: [[2.0]], "good": [[2.0]], "bad": [[None]]}


def test_runs_are_made_once(tmp_path: Path) -> None:
    made: list[str] = []

    def callbacks(name: str) -> list[Callback]:
        made.append(name)
        return []

    suite = Suite(Runs(tmp_path, callbacks), seeds=[0, 1], over={"rounds": 1})
    bench = suite.bench(["dualproj"], ["mixed-digits"])
    assert len(made) == 2 * (1 + 1 + 3)  # FedAvg, the rule, and three objectives alone
    assert bench.losses["mixed-digits"]["dualproj"].shape == (2, 3)
    assert bench.summary() == suite.bench(["dualproj"], ["mixed-digits"]).summary()
    assert len(made) == 10
    bench.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_a_run_that_diverges_counts_as_one_with_infinite_losses(tmp_path: Path) -> None:
    made: list[str] = []

    def callbacks(name: str) -> list[Callback]:
        made.append(name)
        return []

    for _ in range(2):
        suite = Suite(Runs(tmp_path, callbacks), seeds=[0])
        losses = suite.losses("mixed-digits", "wild", "fedavg", {"client_lr": 1e6}, ["digit", "pixels", "value"])
        assert losses.tolist() == [[np.inf] * 3]
    assert made == ["mixed-digits wild seed 0"]  # it is not repeated


def test_the_suite_is_made_of_problems_that_there_are() -> None:
    assert set(SUITE) <= {*PROBLEMS, *variants()}


def test_command(tmp_path: Path) -> None:
    options = ["--rules", "upgrad,famo", "--problems", "mixed-digits", "--seeds", "0", "--rounds", "1"]
    result = CliRunner().invoke(app, ["bench", "weights", *options, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "upgrad" in result.output
    losses = json.loads((tmp_path / "weights.json").read_text())["losses"]
    assert losses["mixed-digits"].keys() == {FEDAVG, "upgrad", "famo"}
    assert {path.name for path in tmp_path.glob("weights.*")} == {
        f"weights.{end}" for end in ("json", "md", "csv", "png")
    }


@pytest.mark.parametrize(("option", "word"), [("--rules", "upgrade"), ("--problems", "loan"), ("--seeds", "x")])
def test_command_refuses_unknown_words(option: str, word: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "weights", option, word, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert word in result.output
