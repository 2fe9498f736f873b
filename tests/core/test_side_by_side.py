"""Runs side by side: the same bits as one after the other, and no signal to any process loses a finished round."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedcmoo.checkpoint import Checkpoint
from fedcmoo.config import RunConfig
from fedcmoo.failures import DivergedError
from fedcmoo.history import read_history
from fedcmoo.methods import FedAvg
from fedcmoo.run_folder import NEWEST
from fedcmoo.runs import Runs
from fedcmoo.side_by_side import make_side_by_side

ROUNDS = 300


def config(seed: int, rounds: int = 3, client_lr: float = 0.1, local_steps: int = 1) -> RunConfig:
    method = FedAvg(client_lr=client_lr, local_steps=local_steps, batch_size=8)
    return RunConfig(method=method, rounds=rounds, clients_per_round=2, evaluate_every=rounds, seed=seed)


class Events:
    """Notes what it is told, and may kill the running process in some round of a run."""

    def __init__(self, kill_at: tuple[str, int] | None = None) -> None:
        self.started_with: dict[str, int] = {}
        self.rounds: dict[str, list[int]] = {}
        self.errors: dict[str, Exception | None] = {}
        self.kill_at = kill_at
        self.most = 0

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

    def ended(self, name: str, error: Exception | None) -> None:
        self.errors[name] = error


def assert_same_runs(first: Runs, second: Runs, configs: Sequence[RunConfig]) -> None:
    for one in configs:
        histories = [[r.without_time() for r in runs.get(one).history] for runs in (first, second)]
        assert histories[0] == histories[1]
        models = [(runs.place(one) / "model.safetensors").read_bytes() for runs in (first, second)]
        assert models[0] == models[1]


def test_same_bits_and_a_failed_run_does_not_affect_the_others(tmp_path: Path) -> None:
    good, bad = [config(0), config(1)], config(2, client_lr=1e30, local_steps=2)
    runs, plain, events = Runs(tmp_path / "side"), Runs(tmp_path / "plain"), Events()
    make_side_by_side(runs, [good[0], bad, good[1], good[0]], 2, events)
    names = [runs.place(c).name for c in (good[0], bad, good[1])]
    assert list(events.started_with) == names  # each once
    assert events.runs == 3
    assert events.most == 2
    assert [events.rounds[name] for name in (names[0], names[2])] == [[1, 2, 3]] * 2
    assert isinstance(events.errors.pop(names[1]), DivergedError)
    assert events.errors == {names[0]: None, names[2]: None}
    with pytest.raises(DivergedError):
        runs.get(bad)
    assert_same_runs(runs, plain, good)
    again = Events()
    make_side_by_side(runs, good, 2, again)
    assert (again.runs, again.started_with) == (0, {})


def test_a_killed_process_is_named_and_its_run_can_be_continued(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "side")
    killed, other = config(0, rounds=ROUNDS), config(1)
    events = Events(kill_at=(runs.place(killed).name, 20))
    make_side_by_side(runs, [killed, other], 1, events)
    assert "exit code -9" in str(events.errors[runs.place(killed).name])
    with pytest.raises(RuntimeError, match="exit code -9"):
        runs.get(killed)
    assert len(runs.get(other).history) == 3
    assert_same_runs(Runs(tmp_path / "side"), Runs(tmp_path / "plain"), [killed])


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "parent killed"])
def test_a_signal_ends_all_processes_and_loses_nothing(how: str, tmp_path: Path) -> None:
    configs = [config(seed, rounds=ROUNDS) for seed in (0, 1)]
    settings = {"local_steps": 1, "batch_size": 8, "client_lr": 0.1}
    command = [sys.executable, "-m", "fedcmoo", "compare", "two-digits", "--methods", "fedavg", "--seeds", "0,1"]
    command += ["--rounds", str(ROUNDS), "--jobs", "2", "--out", str(tmp_path / "side"), "--set", "clients_per_round=2"]
    command += ["--set", f"evaluate_every={ROUNDS}", *(f"--set=method.{k}={v}" for k, v in settings.items())]
    parent = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(grown := [f for f in tmp_path.glob("side/*/history.jsonl") if f.read_bytes().count(b"\n") >= 5]) < 2:
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
    for history in grown:
        done = len(read_history(history))
        assert 5 <= done < ROUNDS
        assert Checkpoint.decode((history.parent / NEWEST).read_bytes()).round == done
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120).returncode == 0
    assert len(list(tmp_path.glob("side/*/result.json"))) == 2
    assert_same_runs(Runs(tmp_path / "side"), Runs(tmp_path / "plain"), configs)


def _lives(group: int) -> bool:
    """Whether a process of the group still exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
