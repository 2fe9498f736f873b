"""Runs in parallel: the same bits as one after the other, and no signal to any process loses a finished round."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedcmoo.callbacks.progress import ProgressBars
from fedcmoo.checkpoint import Checkpoint
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.failures import DivergedError
from fedcmoo.history import read_history
from fedcmoo.methods import FedAvg
from fedcmoo.parallel_runs import RunProcess, make_in_parallel
from fedcmoo.run_folder import NEWEST
from fedcmoo.runs import Runs

ROUNDS = 150


def config(seed: int, rounds: int = 3, client_lr: float = 0.1, local_steps: int = 1) -> RunConfig:
    method = FedAvg(client_lr=client_lr, local_steps=local_steps, batch_size=8)
    return RunConfig(method=method, rounds=rounds, clients_per_round=2, evaluate_every=rounds, seed=seed)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs that are made one after the other, in this process."""
    return Runs(tmp_path_factory.mktemp("plain"))


class Events:
    """Notes what it is told, and may kill the running process in some round of a run."""

    def __init__(self, kill_at: tuple[str, int] | None = None) -> None:
        self.started_with: dict[str, int] = {}
        self.rounds: dict[str, list[int]] = {}
        self.errors: dict[str, Exception | None] = {}
        self.warnings: list[tuple[str, str]] = []
        self.kill_at = kill_at
        self.runs = self.most = 0

    def planned(self, runs: int) -> None:
        self.runs = runs

    def started(self, name: str, rounds: int) -> None:
        self.started_with[name] = rounds
        self.rounds[name] = []
        self.most = max(self.most, len(self.started_with) - len(self.errors))

    def advanced(self, name: str, round: int) -> None:
        self.rounds[name].append(round)
        if (name, round) == self.kill_at:
            (process,) = multiprocessing.active_children()
            process.kill()

    def warned(self, name: str, text: str) -> None:
        self.warnings.append((name, text))

    def ended(self, name: str, error: Exception | None) -> None:
        self.errors[name] = error


def assert_same_runs(first: Runs, second: Runs, *configs: RunConfig) -> None:
    for one in (replace(same, engine=Local()) for same in configs):
        histories = [[r.without_time() for r in runs.get(one).history] for runs in (first, second)]
        assert histories[0] == histories[1]
        models = [(runs.place(one) / "model.safetensors").read_bytes() for runs in (first, second)]
        assert models[0] == models[1]


def test_same_bits_and_a_failed_run_does_not_affect_the_others(plain: Runs, tmp_path: Path) -> None:
    bad = config(2, client_lr=1e30, local_steps=2)
    undone = config(3, client_lr=1e30)  # no step is taken from a model that is not finite
    configs = {"first": config(0), "bad": bad, "second": config(1), "undone": undone, "first again": config(0)}
    runs, events = Runs(tmp_path / "parallel"), Events()
    make_in_parallel(runs, configs, 2, events)
    assert list(events.started_with) == ["first", "bad", "second", "undone"]  # each once
    assert (events.runs, events.most) == (4, 2)
    assert [events.rounds[name] for name in ("first", "second", "undone")] == [[1, 2, 3]] * 3
    assert [name for name, text in events.warnings if "is undone: the norm" in text] == ["undone"] * 3
    error = events.errors.pop("bad")
    assert isinstance(error, DivergedError)
    assert "in a worker process" in error.__notes__[-1]  # with the traceback
    assert events.errors == {"first": None, "second": None, "undone": None}
    with pytest.raises(DivergedError):
        runs.get(bad)
    assert_same_runs(runs, plain, config(0), config(1))
    again = Events()
    make_in_parallel(Runs(tmp_path / "parallel"), configs, 2, again)
    assert again.started_with == {}  # not even the one that diverged


def test_a_killed_process_is_named_and_its_run_can_be_continued(plain: Runs, tmp_path: Path) -> None:
    runs, events = Runs(tmp_path / "parallel"), Events(kill_at=("killed", 25))
    killed, other = config(0, rounds=ROUNDS), config(1)
    make_in_parallel(runs, {"killed": killed, "other": other}, 1, events)
    assert "killed ended unexpectedly (killed by signal 9)" in str(events.errors["killed"])
    with pytest.raises(ChildProcessError, match="run the command again"):
        runs.get(killed)
    assert len(runs.get(other).history) == 3
    assert Checkpoint.decode((runs.place(killed) / NEWEST).read_bytes()).round >= 20
    assert_same_runs(Runs(tmp_path / "parallel"), plain, killed)


def test_an_error_that_only_the_run_can_load_is_survived() -> None:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    sending.send_bytes(b"cmodule_that_is_not_there\nError\n.")  # a pickle of a class
    process = RunProcess("run", config(0), multiprocessing.get_context("spawn").Process(), receiving)
    assert process.receive(Events())
    assert "its error cannot be loaded (No module named 'module_that_is_not_there')" in str(process.error)


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "parent killed"])
def test_a_signal_ends_all_processes_and_loses_nothing(how: str, plain: Runs, tmp_path: Path) -> None:
    settings = {"local_steps": 1, "batch_size": 8, "client_lr": 0.1}
    command = [sys.executable, "-m", "fedcmoo", "compare", "two-digits", "--methods", "fedavg", "--seeds", "0,1"]
    command += ["--rounds", str(ROUNDS), "--jobs", "2", "--out", str(tmp_path / "parallel")]
    command += ["--set=clients_per_round=2", f"--set=evaluate_every={ROUNDS}"]
    command += [f"--set=method.{name}={value}" for name, value in settings.items()]
    parent = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(grown := [f for f in tmp_path.glob("parallel/*/history.jsonl") if f.read_bytes().count(b"\n") >= 5]) < 2:
        assert parent.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    if how == "ctrl-c":
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    else:
        parent.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGKILL)
    error = parent.communicate(timeout=60)[1].decode()
    assert parent.returncode == {"ctrl-c": 130, "sigterm": 143, "parent killed": -9}[how]
    assert "Traceback" not in error
    assert (how == "ctrl-c") == ("Run the same command again to continue." in error)
    while _lives(parent.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = {history: len(read_history(history)) for history in grown}
    assert 5 <= min(done.values()) < ROUNDS
    for history, rounds in done.items():
        assert Checkpoint.decode((history.parent / NEWEST).read_bytes()).round == rounds
    assert_same_runs(Runs(tmp_path / "parallel"), plain, *(config(seed, ROUNDS) for seed in (0, 1)))  # continued
    assert len(list(tmp_path.glob("parallel/*/result.json"))) == 2


def _lives(group: int) -> bool:
    """Whether a process of the group still exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_bars_in_a_terminal_and_lines_in_a_file() -> None:
    for terminal in (True, False):
        text = io.StringIO()
        with ProgressBars(Console(file=text, force_terminal=terminal, width=100)) as bars:
            bars.planned(2)
            bars.started("first [0]", 20)
            for t in range(1, 21):
                bars.advanced("first [0]", t)
            bars.warned("first [0]", "a warning")
            bars.ended("first [0]", None)
            bars.started("second", 20)
            bars.ended("second", ValueError("no data"))
        for line in ("first [0]: a warning", "first [0]: finished", "second: failed: no data"):
            assert line in text.getvalue()
        assert ("first [0]: round 18/20" in text.getvalue()) is not terminal
        assert ("runs" in text.getvalue()) is terminal
