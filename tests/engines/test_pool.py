"""The pool engine, on real worker processes."""

from __future__ import annotations

import copy
import importlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedcmoo import FSMGDA, FedAvg, FedCMOO, Objective, Result, fit
from fedcmoo.engines import ENGINES, Engine, Local, Pool
from fedcmoo.engines.dispatch import WorkerError
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.failures import DivergedError, Skip
from fedcmoo.methods import Method
from fedcmoo.parameters import FlatModel
from fedcmoo.rounds import Sizes
from tests.core.problems import classification
from tests.core.runs import assert_same
from tests.engines.accidents import Accident, Bug, Killed, OutOfMemory, Stopped, Stuck, nothing_but_nan

METHOD = FedCMOO(client_lr=0.1, local_steps=3, batch_size=16)


def run(
    engine: Engine, method: Method = METHOD, transform: Any = None, rounds: int = 3, on_failure: str = "stop"
) -> Result:
    problem = classification()
    if transform is not None:
        problem.transform = transform
    return fit(
        problem, method, rounds, clients_per_round=5, seed=1, engine=engine, evaluate_every=2, on_failure=on_failure
    )


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return run(Local())


@pytest.mark.parametrize(
    "method",
    [METHOD, FSMGDA(local_steps=2, batch_size=16), FedAvg(local_steps=2)],
    ids=lambda method: type(method).__name__,
)
def test_same_bits_for_any_number_of_workers(method: Method) -> None:
    """With dropout, BatchNorm and augmentation: everything that could depend on who computes what."""
    here = run(Local(), method)
    for workers in (1, 2, 3):
        assert_same(run(Pool(workers=workers), method), here)


def test_same_bits_with_convolutions() -> None:
    """Their kernels are the ones that choose by alignment, threads and what they computed before."""
    settings = TwoDigits(clients=4, train_pairs=400, validation_pairs=10, test_pairs=1100, dropout=0.5)
    problem = settings.build(seed=0)
    method = FedCMOO(local_steps=3, batch_size=32)
    results = [fit(problem, method, 2, clients_per_round=3, engine=engine) for engine in (Local(), Pool(workers=2))]
    assert_same(*results)


def test_blocks_of_several_clients() -> None:
    """Forty clients are summed in 32 blocks, in every engine."""
    problem = classification(clients=40, samples=6)
    results = [fit(problem, METHOD, 2, clients_per_round=40, engine=engine) for engine in (Local(), Pool(workers=2))]
    assert_same(*results)


@pytest.mark.parametrize("accident", [Killed, OutOfMemory])
def test_a_lost_worker_costs_only_time(accident: type[Accident], tmp_path: Path, undisturbed: Result) -> None:
    """In phase two, where whoever does the job again has none of the gradients of phase one."""
    marker = tmp_path / "happened"
    assert_same(run(Pool(workers=2), transform=accident(marker, at_batch=5)), undisturbed)
    assert marker.exists()


def test_skip_goes_on_without_lost_clients(tmp_path: Path) -> None:
    marker = tmp_path / "happened"
    result = run(Pool(workers=2, retries=0), transform=Killed(marker, at_batch=5), on_failure="skip")
    failed = [(r, client) for r in result.history for client in r.failures]
    assert len(failed) == 1
    record, client = failed[0]
    assert int(client) in record.cohort
    assert "killed by signal 9" in record.failures[client]
    assert len(result.history) == 3


def test_a_stopped_worker_is_replaced_and_costs_only_time(tmp_path: Path, undisturbed: Result) -> None:
    marker = tmp_path / "happened"
    assert_same(run(Pool(workers=2, deadline=6), transform=Stopped(marker, at_batch=5)), undisturbed)
    assert marker.exists()


def test_clients_that_stall_are_left_out_for_some_rounds(tmp_path: Path) -> None:
    problem = classification()
    problem.transform = Stuck(tmp_path / "happened")
    rule = Skip(pause=1)
    result = fit(
        problem, METHOD, 3, clients_per_round=8, engine=Pool(workers=2, deadline=6, retries=0), on_failure=rule
    )
    first, second, third = (record.failures for record in result.history)
    assert len(first) == 1
    assert "no reply within 6 seconds" in first.popitem()[1]
    assert list(second.values()) == ["left out until round 3, since it did not reply in time"]
    assert not third


def test_clients_that_always_kill_their_worker_end_the_run() -> None:
    with pytest.raises(WorkerError, match=r"of clients \[\d\] was lost 1 times in a row \(killed by signal 9\)"):
        run(Pool(workers=1, retries=0), transform=Killed(None, at_batch=2))


def test_a_bug_in_user_code_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError, match="no such sample: 17") as caught:
        run(Pool(workers=1), transform=Bug(None))
    assert "accidents.py" in "".join(caught.value.__notes__)


def test_divergence_comes_out_as_it_is() -> None:
    problem = classification()
    problem.objectives = [problem.objectives[0], Objective("second", nothing_but_nan)]
    with pytest.raises(DivergedError, match="objective 'second' became NaN or infinite in round 1"):
        fit(problem, METHOD, 2, engine=Pool(workers=1))


def test_ctrl_c_ends_busy_workers_at_once(tmp_path: Path) -> None:
    marker = tmp_path / "busy"
    busy: list[int] = []

    def interrupt() -> None:
        while not marker.exists():
            time.sleep(0.01)
        busy.append(int(marker.read_text()))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(Pool(workers=1), transform=Stuck(marker))
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(busy[0], 0)


def test_refuses_what_cannot_be_sent() -> None:
    problem = classification()
    problem.objectives = [problem.objectives[0], Objective("mean", lambda output, target: output.mean())]
    with pytest.raises(WorkerError, match=r"cannot be sent to workers .*lambda.* or use engine=Local\(\)"):
        fit(problem, METHOD, 1, engine=Pool(workers=1))


def test_is_known_by_name() -> None:
    assert ENGINES["pool"] is Pool


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, but got 0"),
        ({"threads": 0}, "threads must be a whole number of at least 1, but got 0"),
        ({"deadline": 0}, "deadline must be positive and finite, but got 0"),
        ({"retries": -1}, "retries must not be negative, but got -1"),
        ({"precision": "float8"}, "precision must be 'float32' or 'bfloat16', but got 'float8'"),
    ],
)
def test_refuses_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pool(**settings)


def test_workers_are_taken_over_until_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, where a module is edited and reloaded between two runs."""
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "edited_between_runs.py"
    source.write_text("weight = 1")
    importlib.import_module("edited_between_runs")

    problem = classification()
    sizes = Sizes.of(FlatModel(copy.deepcopy(problem.model)), problem.M)

    def pids() -> list[int]:
        with Pool(workers=1).start(problem, METHOD.channels(), 0, sizes) as session:
            return [worker.pid for worker in session.workers]

    before = pids()
    assert pids() == before
    source.write_text("weight = 2")
    assert pids() != before
