"""Accuracy against upload, on a small problem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcmoo.cli import app

SMALL = [
    *("--rounds", "2", "--seeds", "0,1", "--uploads", "0.05,0.02", "--engine", "local"),
    *("--set", "problem.train_pairs=400", "--set", "problem.clients=4", "--set", "clients_per_round=2"),
    *("--set", "problem.validation_pairs=20", "--set", "problem.test_pairs=50", "--set", "method.local_steps=2"),
]


def test_uploads_are_what_they_are_called(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "traffic", "two-digits", *SMALL, "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    bench = json.loads((tmp_path / "traffic.json").read_text())
    d = bench["d"]
    upload = {row["label"]: row["upload"] / 4 / d for row in bench["rows"]}
    assert 2 < upload["FSMGDA"] < 2.0002  # and a header
    assert 1.7 < upload["paper"] < 2  # the update, and d_shared numbers
    assert 1.008 < upload["float32"] < 1.01  # the sketch of a hundredth of d_shared
    gram = upload["float32"] - 1
    for bits in (8, 4, 2, 1):
        assert upload[f"{bits}-bit"] == pytest.approx(gram + bits / 32, rel=0.01)
    for whole in (0.05, 0.02):
        assert 0.9 * whole < upload[f"upload-{whole:g}"] <= whole
    for row in bench["rows"]:
        assert {name: len(scores) for name, scores in row["scores"].items()} == {"left": 2, "right": 2}
        assert row["total"] == pytest.approx(row["upload"] * 2 * 2)
    assert (tmp_path / "traffic.png").stat().st_size > 1000
