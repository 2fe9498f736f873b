"""`fedcmoo data` as a user types it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    # Some releases of typer import names that click has deprecated; that is not ours to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from fedcmoo.cli.data import app

RUNNER = CliRunner()


def test_partition_reports_and_draws(tmp_path: Path) -> None:
    figure = tmp_path / "skew.png"
    arguments = ["partition", "two-digits", "--set", "problem.clients=20", "--set", "problem.train_pairs=1000"]
    result = RUNNER.invoke(app, [*arguments, "--out", str(figure)])
    assert result.exit_code == 0, result.output
    assert "20 clients with 50 samples each, 1000 of a set of 1000" in result.stdout
    assert "left: a client has" in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads(RUNNER.invoke(app, [*arguments, "--out", str(figure), "--json"]).stdout)
    assert numbers["sizes"] == [50] * 20
    assert sum(map(sum, numbers["counts"]["right"])) == 1000


def test_partition_follows_alpha(tmp_path: Path) -> None:
    seen = {}
    for alpha in (0.05, 100.0):
        arguments = ["--set", f"problem.alpha={alpha}", "--set", "problem.clients=20", "--json"]
        result = RUNNER.invoke(app, ["partition", "two-digits", "--out", str(tmp_path / "f.png"), *arguments])
        seen[alpha] = sum(count > 0 for row in json.loads(result.stdout)["counts"]["left"] for count in row)
    assert seen[0.05] < seen[100.0] == 200


def test_partition_without_data_says_how_to_get_it(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["partition", "mnist-fmnist", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "fedcmoo data get mnist" in result.stderr
    assert "Traceback" not in result.output


def test_unknown_problem_is_a_usage_error() -> None:
    result = RUNNER.invoke(app, ["partition", "two-digitz"])
    assert result.exit_code == 2
    assert "two-digits" in result.stderr


def test_status(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (raw / f"{part}-{kind}-ubyte").touch()
    numbers = json.loads(RUNNER.invoke(app, ["status", "--data", str(tmp_path), "--json"]).stdout)
    assert numbers["missing"]["mnist"] == []
    assert len(numbers["missing"]["fashion-mnist"]) == 4
    assert numbers["ready"]["multimnist"]
    assert not numbers["ready"]["mnist-fmnist"]
    text = RUNNER.invoke(app, ["status", "--data", str(tmp_path)]).stdout
    assert "fedcmoo data get mnist-fmnist" in text


def test_get_celeba_tells_how(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["get", "celeba", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "list_eval_partition.txt into" in result.stderr


def test_get_unknown(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["get", "imagenet", "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert "'imagenet' is neither a data set nor a problem; known are celeba, celeba5," in " ".join(
        result.stderr.split()
    )
    result = RUNNER.invoke(app, ["get", "mnistt", "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert "did you mean 'mnist'?" in result.stderr


def test_data_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCMOO_DATA", str(tmp_path / "mine"))
    assert json.loads(RUNNER.invoke(app, ["status", "--json"]).stdout)["folder"] == str(tmp_path / "mine")
