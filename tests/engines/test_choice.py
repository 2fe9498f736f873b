"""Which engine a run gets, and scripts that use workers."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedcmoo import FedCMOO, Objective, fit
from fedcmoo.engines import Engine, Local, Pool, choose_engine
from fedcmoo.engines.choice import memory, workers_in_memory
from fedcmoo.engines.dispatch import WorkerError
from fedcmoo.engines.pool import usable_cores
from fedcmoo.engines.worker_handle import IN_WORKER
from fedcmoo.parameters import FlatModel
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes
from tests.core.problems import classification

METHOD = FedCMOO(local_steps=2, batch_size=8)
SIZES = Sizes(d=100, d_shared=50, M=2)


def choose(problem: Problem, steps: int, engine: Engine | None = None) -> Engine:
    return choose_engine(engine, problem, METHOD.channels(), SIZES, clients_per_round=2, steps=steps, batch_size=8)


def test_what_is_asked_for_is_taken() -> None:
    engine = Local()
    assert choose(classification(), 10**7, engine) is engine


def test_little_work_stays_here() -> None:
    assert choose(classification(), 10) == Local()


@pytest.mark.skipif(usable_cores() == 1, reason="needs more than one core")
def test_much_work_is_for_workers() -> None:
    engine = choose(classification(), 10**7)
    assert engine == Pool(workers=2)


def test_what_cannot_be_sent_stays_here() -> None:
    problem = classification()
    problem.objectives = [problem.objectives[0], Objective("mean", lambda output, target: output.mean())]
    assert choose(problem, 10**7) == Local()


def test_fewer_workers_for_more_objectives() -> None:
    assert workers_in_memory(replace(SIZES, M=10**7)) < workers_in_memory(SIZES)


def test_a_worker_does_not_start_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As happens when it imports a main script without a guard."""
    monkeypatch.setenv(IN_WORKER, "1")
    with pytest.raises(WorkerError, match="put the call under `if __name__ == '__main__':`"):
        fit(classification(), METHOD, 1)


SCRIPT = """
import os, torch
from torch import nn
from fedcmoo import Callback, FedCMOO, Objective, Problem, fit
from fedcmoo.engines import Pool

class Tell(Callback):
    def after_round(self, record):
        print("round", record.round, flush=True)

def loss(output, target):
    with open("workers", "a") as file:
        print(os.getpid(), file=file)
    return output.square().mean()

if __name__ == "__main__":
    data = (torch.randn(8, 3), torch.zeros(8))
    problem = Problem(nn.Linear(3, 1), [Objective("a", loss), Objective("b", loss)], [data] * 4)
    fit(problem, FedCMOO(local_steps=1, server_lr=0.01), 10**6, engine=Pool(workers=1), callbacks=[Tell()])
"""


def test_workers_of_a_killed_script_end_too(tmp_path: Path) -> None:
    """The script defines its own loss, which the worker imports from it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "round 1\n"
        script.kill()
    workers = {int(line) for line in (tmp_path / "workers").read_text().split()} - {script.pid}
    assert len(workers) == 1
    deadline = time.monotonic() + 10
    while _is_running(*workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")  # dead, but not reaped yet


def test_signals_of_the_terminal_are_the_servers_to_handle() -> None:
    """Ctrl-C in a terminal goes to a whole process group; workers are in their own."""
    problem = classification()
    sizes = Sizes.of(FlatModel(copy.deepcopy(problem.model)), problem.M)
    with Pool(workers=1).start(problem, METHOD.channels(), 0, sizes) as session:
        assert os.getpgid(session.workers[0].pid) != os.getpgid(0)


def test_a_container_may_have_less_memory_than_its_machine(tmp_path: Path) -> None:
    machine = memory(tmp_path)  # without a file there is no limit
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(tmp_path) == machine
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory(tmp_path) == 2**20
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("4096\n")  # version 1
    assert memory(tmp_path) == 4096
