"""`fedcmoo reproduce` for real, on tiny random images: what fails costs itself only, what is done stays."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from fedcmoo.callbacks import Callback
from fedcmoo.cli.options import out
from fedcmoo.cli.reproduce import duration
from fedcmoo.cli.reproduce import reproduce as command
from fedcmoo.history import Record, read_history
from fedcmoo.reproduce.command import choose, reproduce
from fedcmoo.reproduce.outcome import Outcome
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets import TARGETS
from fedcmoo.reproduce.targets.rate import Rate
from fedcmoo.runs import Runs

SETTINGS = {
    "problem.train_pairs": 60,
    "problem.test_pairs": 20,
    "problem.clients": 4,
    "clients_per_round": 2,
    "method.local_steps": 1,
    "method.batch_size": 4,
    "engine": "local",
}
TINY = ["--rounds", "2", *(part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}"))]


def idx(path: Path, values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(header + values.tobytes())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST's files with random images; no other data set."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for part, n in (("train", 40), ("t10k", 20)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        idx(folder / f"MNIST/raw/{part}-images-idx3-ubyte", images)
        idx(folder / f"MNIST/raw/{part}-labels-idx1-ubyte", (np.arange(n) % 10).astype(np.uint8))
    return folder


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [*arguments])


def histories(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/history.jsonl")}


def test_missing_data_costs_its_part_and_the_rest_stays(data: Path, tmp_path: Path) -> None:
    arguments = ["qm9", "table2", "--data", str(data), "--out", str(tmp_path), *TINY]
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert "failed: table2 cifar10-mnist: cifar10 needs" in result.stderr
    assert "failed: qm9 qm9: unknown setting 'problem.train_pairs'" in result.stderr
    table = (tmp_path / "table2.md").read_text()
    assert "MultiMNIST" in table
    assert "CIFAR10+MNIST |" not in table
    assert "FedAvg fails on the l2 objective of MultiMNIST" in (tmp_path / "claims.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "cifar10 needs" in page
    assert str(data) not in page  # a page is made to be shown
    before = histories(tmp_path)
    assert len(before) == 3
    assert invoke(*arguments).exit_code == 1
    assert histories(tmp_path) == before  # nothing was computed again


def test_a_target_without_any_data(data: Path, tmp_path: Path) -> None:
    result = invoke("radial", "--data", str(data), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "failed: radial celeba: celeba needs" in result.stderr
    assert "No results for celeba5: " in (tmp_path / "README.md").read_text()


def test_dry_run_only_lists(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 160)
    scale = ["--seeds", "0,1", "--seeds", "cifar10-mnist=7", "--rounds", "cifar10-mnist=3"]
    result = invoke("table2", "--data", str(data), "--out", str(tmp_path / "o"), "--dry-run", *TINY, *scale)
    assert result.exit_code == 0
    assert [line.split("  ")[1] for line in result.stdout.splitlines() if "FedAvg" in line] == [
        "multimnist FedAvg, seeds 0, 1",
        "cifar10-mnist FedAvg, seed 7",
    ]
    assert " in all" in result.stdout
    assert not (tmp_path / "o").exists()


def test_dry_run_knows_what_data_are_missing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without data take no time, and are no part of the total."""
    monkeypatch.setattr(out, "_width", 40)
    arguments = ["--out", str(tmp_path / "o"), "--rounds", "5", "--dry-run"]
    radial = invoke("radial", "--data", str(data), *arguments)
    text = " ".join(radial.stdout.split())
    assert "about 0 seconds in all" in text
    assert "without the 8 runs whose data are missing: see fedcmoo data get celeba" in text
    assert max(map(len, radial.stdout.splitlines())) <= 40
    assert "missing" not in invoke("rate", "--data", str(data), *arguments).stdout


def test_what_cannot_be_written_costs_itself_only(tmp_path: Path) -> None:
    study, runs = Study(rounds=2, seeds=(0,)), Runs(tmp_path / "runs")
    (config,) = choose(["rate"])[0].plan(study, "valleys")["T 1"]
    runs.folder.mkdir()
    runs.place(config).write_text("no folder")
    failures = reproduce(choose(["rate"]), study, tmp_path, runs)
    assert list(failures) == ["rate valleys"]
    assert runs.place(config).name in failures["rate valleys"]
    runs.place(config).unlink()
    assert reproduce(choose(["rate"]), study, tmp_path, Runs(tmp_path / "runs")) == {}
    before = (tmp_path / "rate.md").read_text()
    other = Runs(tmp_path / "other")
    other.folder.write_text("no folder either")
    assert list(reproduce(choose(["rate"]), study, tmp_path, other)) == ["rate valleys"]
    assert not Outcome.load(Outcome.place(tmp_path, "rate")).failures  # what was made before stays
    assert (tmp_path / "rate.md").read_text() == before


def test_a_plan_without_a_part_names_it(tmp_path: Path) -> None:
    places = ["--data", str(tmp_path / "empty"), "--out", str(tmp_path)]
    result = invoke("table1", "rate", "--dry-run", "--set", "problem.train_pairs=60", *places)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "mnist-fmnist table1 60 no data" in text
    assert "impossible: unknown setting" in text


def test_a_whole_outcome_is_kept_when_parts_fail_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, runs = Study(rounds=2, seeds=(0,)), Runs(tmp_path / "runs")
    assert reproduce(choose(["rate"]), study, tmp_path, runs) == {}
    whole = Outcome.place(tmp_path, "rate").read_text()
    monkeypatch.setattr(Rate, "parts", ("valleys", "hills"))
    monkeypatch.setattr(
        Rate, "plan", lambda self, study, part, plan=Rate.plan: {"valleys": plan}[part](self, study, part)
    )
    for _ in range(2):
        assert list(reproduce(choose(["rate"]), study, tmp_path, runs)) == ["rate hills"]
        assert list(Outcome.load(Outcome.place(tmp_path, "rate")).failures) == ["hills"]
        assert (tmp_path / "data/rate.json.before").read_text() == whole


def test_a_missing_extra_costs_the_page_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    failures = reproduce(choose(["rate"]), Study(rounds=2, seeds=(0,)), tmp_path, Runs(tmp_path / "runs"))
    assert list(failures) == ["report.html"]
    assert "pip install 'plotly" in failures["report.html"]
    assert "rate.svg" in (tmp_path / "README.md").read_text()


def test_finished_only_trains_nothing(tmp_path: Path) -> None:
    result = invoke("rate", "--rounds", "2", "--seeds", "0", "--finished-only", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "failed: rate valleys: its runs are not finished" in result.stderr
    assert not (tmp_path / "runs").exists()
    assert "No results for valleys: its runs are not finished" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_only_makes_the_named_runs_and_no_tables(
    jobs: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "_width", 160)
    arguments = ["table1", "--data", str(data), "--out", str(tmp_path), "--seeds", "0,1", *TINY]
    only = ["--only", "multimnist fedcmoo, seed 1", "--only", "multimnist FedAvg"]  # and not FedCMOO-Pref
    listed = invoke(*arguments, *only, "--dry-run").stdout
    names = [line.split("  ")[1] for line in listed.splitlines() if "seed" in line]
    assert names == ["multimnist FedCMOO, seed 1", "multimnist FedAvg, seed 0", "multimnist FedAvg, seed 1"]
    assert invoke(*arguments, *only, "--jobs", jobs).exit_code == 0
    made = sorted(path.parent.name.rpartition("-")[0] for path in tmp_path.glob("runs/*/result.json"))
    assert made == ["multimnist-fedavg-seed0", "multimnist-fedavg-seed1", "multimnist-fedcmoo-seed1"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    before = histories(tmp_path)
    for name in names:
        assert invoke(*arguments, "--only", name).exit_code == 0
    assert histories(tmp_path) == before


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_only_reports_runs_that_fail(jobs: str, data: Path, tmp_path: Path) -> None:
    arguments = ["table1", "--data", str(data), "--out", str(tmp_path), *TINY]
    result = invoke(*arguments, "--only", "cifar10-mnist FedAvg", "--only", "multimnist FedAvg", "--jobs", jobs)
    assert result.exit_code == 1
    assert "failed: table1: cifar10-mnist FedAvg, seed 0: cifar10 needs" in " ".join(result.stderr.split())
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "FedProx"], "name, such as 'table1: mnist-fmnist FSMGDA, seed 0', but got FedProx"),
        (["--only", "FedAvg", "--set", "method.lcoal_steps=3"], "did you mean 'local_steps'"),
        (["--only", "FedAvg", "--finished-only"], "but got both"),
    ],
)
def test_only_with_wrong_arguments(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    result = invoke("table1", "--out", str(tmp_path), *arguments)
    assert result.exit_code in {1, 2}
    assert complaint in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments() -> None:
    assert "did you mean 'table1'" in invoke("tabel1").stderr
    assert "whole numbers separated by commas" in invoke("rate", "--seeds", "a,b").stderr


def test_help_names_every_target() -> None:
    page = invoke("--help").stdout
    assert [name for name in TARGETS if name not in page] == []


def test_long_times_are_told_in_hours_and_days() -> None:
    assert [duration(s) for s in (30, 3600, 9000, 900_000)] == ["30 seconds", "60.0 minutes", "2.5 hours", "10.4 days"]


class Interrupt(Callback):
    """Ctrl-C after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def after_round(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    study, target = Study(rounds=3, seeds=(0,)), choose(["rate"])  # runs of 1, 2 and 3 rounds
    whole = Runs(tmp_path / "whole/runs")
    assert reproduce(target, study, tmp_path / "whole", whole) == {}
    interrupt = Interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        reproduce(target, study, tmp_path / "cut", Runs(tmp_path / "cut/runs", lambda name: [interrupt]))
    before = histories(tmp_path / "cut")
    finished = [path.parent.name for path in (tmp_path / "cut").glob("runs/*/result.json")]
    assert 0 < len(finished) < len(before) < len(histories(tmp_path / "whole"))
    assert reproduce(target, study, tmp_path / "cut", Runs(tmp_path / "cut/runs")) == {}
    after = histories(tmp_path / "cut")
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    assert (tmp_path / "cut/rate.csv").read_text() == (tmp_path / "whole/rate.csv").read_text()


SCRIPT = """
import sys, typer
from fedcmoo.cli.reproduce import reproduce
app = typer.Typer()
app.command()(reproduce)
app()
"""


def test_killed_and_started_again(tmp_path: Path) -> None:
    arguments = ["rate", "--rounds", "20", "--seeds", "0", "--set", "engine=local", "--out", str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("killed/runs/*/result.json"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = histories(tmp_path / "killed")
    finished = [path.parent.name for path in (tmp_path / "killed").glob("runs/*/result.json")]
    assert len(finished) < 7
    assert invoke(*arguments).exit_code == 0
    after = histories(tmp_path / "killed")
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    longest = max((tmp_path / "killed").glob("runs/*"), key=lambda run: len(read_history(run / "history.jsonl")))
    assert [record.round for record in read_history(longest / "history.jsonl")] == list(range(1, 21))
    assert (tmp_path / "killed/rate.png").exists()
