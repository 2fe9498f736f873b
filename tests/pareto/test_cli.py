"""`fedcmoo pareto` as a person runs it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcmoo.cli import app

pytest.importorskip("moocore", reason="the extra pareto is not installed")

TINY = ["train_pairs=200", "test_pairs=50", "validation_pairs=50", "clients=4"]
COMMON = ["--engine", "local", *(word for setting in TINY for word in ("--set", f"problem.{setting}"))]


def fedcmoo(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pareto", *args])
    return result.exit_code, result.stdout, result.stderr


def test_a_sweep_and_its_models(tmp_path: Path) -> None:
    folder = str(tmp_path / "sweep")
    sweep = [*COMMON, "--set", "method.local_steps=2", "--set", "clients_per_round=2", "--rounds", "2", "--out", folder]
    code, out, err = fedcmoo(*sweep, "--preferences", "1:3,3:1", "--single", "--fedavg", "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert [point["preference"] for point in summary["points"]] == [[1, 3], [3, 1]]
    assert [point["label"] for point in summary["single"]] == ["left alone", "right alone"]
    assert (tmp_path / "sweep/front.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = fedcmoo("--out", folder, "--pick", "5:1", "--json")
    assert code == 0, err
    picked = json.loads(out)
    assert picked["scores"] in [point["scores"] for point in summary["points"]]
    assert Path(picked["model"]).exists()
    code, out, err = fedcmoo(*sweep, "--preferences", "1:3,3:1")  # again: everything is there already
    assert code == 0, err
    assert "hypervolume" in out
    assert "round" not in err
    resumed = CliRunner().invoke(app, ["resume", folder])
    assert resumed.exit_code == 2
    assert "`fedcmoo pareto`" in resumed.stderr
    code, _, err = fedcmoo(*sweep, "--preferences", "1:3", "--set", "problem.alpha=5")
    assert code == 2
    assert "already holds a sweep with other settings" in " ".join(err.split())
    code, out, err = fedcmoo(*sweep, "--preferences", "1:3", "--rounds", "3", "--json")
    assert code == 0, err
    assert "rounds = 3" in (tmp_path / "sweep/sweep.toml").read_text()


def test_all_settings_of_the_configuration_reach_the_runs(tmp_path: Path) -> None:
    settings = ["clip=0.5", "download=8-bit", "on_failure=skip", "acceptance.max_norm=50", "clients_per_round=2"]
    changed = [word for setting in settings for word in ("--set", setting)]
    common = [*COMMON, *changed, "--preferences", "1:1", "--rounds", "1", "--out"]
    code, _, err = fedcmoo(*common, str(tmp_path / "sweep"))
    assert code == 0, err
    written = json.loads((tmp_path / "sweep/sweep.json").read_text())
    assert (written["download"], written["on_failure"][:4]) == ("8-bit", "Skip")
    assert "max_norm=50" in written["acceptance"]
    run = tomllib.loads((tmp_path / "sweep/points/1_1/config.toml").read_text())
    assert run["download"] == "8-bit"
    private = ["--set", "clip=none", "--set", "privacy.name=differential", "--set", "privacy.epsilon=8.0"]
    code, _, err = fedcmoo(*common, str(tmp_path / "private"), *private)
    assert code == 1
    assert "differential privacy takes sums of gradients and updates alone" in " ".join(err.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--preferences", "1:2:3"], "one number per objective (2)"),
        (["--preferences", "1:0"], "from 1e-6 to 1e6"),
        (["--preferences", "1:1,1:1"], "preferences must be different, but 1:1 asks for the same as 1:1"),
        (["--preferences", "1:2,2:4"], "preferences must be different, but 2:4 asks for the same as 1:2"),
        (["--preferences", "some"], "numbers with colons between them, such as 2:1"),
        (["--pick", "2:1"], "must be the folder of a finished sweep"),
    ],
)
def test_mistakes_are_told_in_a_line(args: list[str], message: str, tmp_path: Path) -> None:
    code, _, err = fedcmoo(*COMMON, "--out", str(tmp_path / "none"), *args)
    assert code == 1
    assert not (tmp_path / "none").exists()
    assert message in " ".join(err.split())
