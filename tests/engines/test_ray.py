"""The Ray engine, on real actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fedcmoo import FedCMOO, Objective, Problem, fit
from fedcmoo.drift import Drift, Scaffold
from fedcmoo.engines import ENGINES, Engine
from fedcmoo.engines.local import Local
from fedcmoo.engines.ray import Ray, connect
from fedcmoo.failures import DivergedError
from fedcmoo.gram import Exact
from tests.core.problems import classification
from tests.core.runs import assert_same
from tests.core.stateful import ChangesTheModel
from tests.core.test_private import SMALL, private
from tests.engines.accidents import Killed, Stopped

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """One small Ray for all tests of this module: starting it takes seconds."""
    connect(Ray(workers=2))
    yield
    ray.shutdown()


def nothing_but_nan(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return output.mean() * float("nan")


def problem(second_loss: Callable[..., torch.Tensor] | None = None) -> Problem:
    """Seven clients, of different sizes, with a normalised two-headed regression and a test set."""
    draws = torch.Generator().manual_seed(0)

    def data(n: int) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        x = torch.randn(n, 5, generator=draws)
        return x, (x @ torch.randn(5, 1, generator=draws), torch.randn(n, 1, generator=draws))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
    objectives = [Objective("a", nn.MSELoss()), Objective("b", second_loss or nn.L1Loss())]
    return Problem(model, objectives, clients=[data(6 + i) for i in range(7)], test=data(2100))


@pytest.mark.parametrize("drift", [Drift(), Scaffold()], ids=["stateless", "stateful"])
def test_same_bits_as_the_local_engine(drift: Drift) -> None:
    method = FedCMOO(client_lr=0.05, local_steps=3, batch_size=4, gram=Exact(), drift=drift)
    here, there = (
        fit(problem(), method, rounds=3, clients_per_round=5, evaluate_every=2, seed=3, engine=engine)
        for engine in (Local(), Ray(workers=2))
    )
    assert_same(here, there)
    assert ray.is_initialized()  # who was connected before stays connected


def test_a_model_that_changes_between_two_asks() -> None:
    method = ChangesTheModel(client_lr=0.05, local_steps=3, batch_size=4)
    here, there = (fit(problem(), method, rounds=2, engine=engine) for engine in (Local(), Ray(workers=2)))
    assert_same(here, there)


def test_a_clients_error_is_that_of_the_run() -> None:
    with pytest.raises(DivergedError, match="objective 'b'"):
        fit(problem(nothing_but_nan), FedCMOO(gram=Exact()), rounds=1, engine=Ray(workers=1))


def test_a_lost_worker_costs_only_time(tmp_path: Path) -> None:
    """In phase two, where whoever does the job again has none of the gradients of phase one."""
    method = FedCMOO(client_lr=0.05, local_steps=3, batch_size=4)
    here = fit(classification(), method, rounds=2, clients_per_round=5, engine=Local())
    disturbed = classification()
    marker = tmp_path / "happened"
    disturbed.transform = Killed(marker, at_batch=5)
    there = fit(disturbed, method, rounds=2, clients_per_round=5, engine=Ray(workers=2))
    assert marker.exists()
    assert_same(here, there)


def test_a_stopped_worker_is_a_failure_of_its_client(tmp_path: Path) -> None:
    disturbed = classification()
    disturbed.transform = Stopped(tmp_path / "happened", at_batch=5)
    engine = Ray(workers=2, deadline=20, retries=0)
    result = fit(disturbed, FedCMOO(local_steps=3), rounds=2, clients_per_round=8, engine=engine, on_failure="skip")
    first, second = (record.failures for record in result.history)
    assert len(first) == len(second) == 1
    assert "no reply within 20 seconds" in first.popitem()[1]
    assert "left out until round 7" in second.popitem()[1]


def test_is_known_by_name() -> None:
    assert ENGINES["ray"] is Ray


def test_refuses_no_workers() -> None:
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1, but got 0"):
        Ray(workers=0)


def test_private_parameters_and_clients_own_metrics_are_those_of_the_local_engine() -> None:
    engines: list[Engine] = [Local(), Ray(workers=2)]
    runs = [
        fit(private(), FedCMOO(**SMALL), 2, clients_per_round=4, engine=engine, evaluate_every=1).history
        for engine in engines
    ]
    assert [record.without_time() for record in runs[0]] == [record.without_time() for record in runs[1]]
    assert runs[0][1].client_test is not None
