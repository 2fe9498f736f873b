"""A comparison in which a method diverges still shows the others."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from fedcmoo.cli import app

TINY = [
    *("compare", "two-digits", "--engine", "local", "--rounds", "3", "--seeds", "0"),
    *("--set", "problem.train_pairs=400", "--set", "problem.clients=4", "--set", "clients_per_round=2"),
    *("--set", "problem.validation_pairs=20", "--set", "problem.test_pairs=50", "--set", "method.local_steps=3"),
]


def test_a_run_that_diverges_is_left_out_and_named(tmp_path: Path) -> None:
    args = [*TINY, "--out", str(tmp_path), "--methods", "fedavg,fedcmoo+client_lr=1e30"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1
    assert "fedcmoo+client_lr=1e30, seed 0 diverged" in result.output
    (row,) = json.loads((tmp_path / "comparison.json").read_text())
    assert (row["label"], row["rounds"]) == ("FedAvg", 3)


def test_if_all_diverge_there_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*TINY, "--out", str(tmp_path), "--methods", "fedcmoo+client_lr=1e30"])
    assert result.exit_code == 1
    assert not (tmp_path / "comparison.json").exists()
