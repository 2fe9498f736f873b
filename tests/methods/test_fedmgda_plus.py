"""FedMGDA+: its step against a convex solver, its extremes, and every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from campaign.loopback import Loopback
from fedcmoo import FedMGDAPlus, Problem, fit
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import MinNorm, NearEqual
from tests.core.problems import classification
from tests.core.runs import assert_same
from tests.core.test_fairness import one_objective

cvxpy = pytest.importorskip("cvxpy")

ONE_STEP: dict[str, Any] = {"client_lr": 0.1, "server_lr": 0.5, "local_steps": 1, "batch_size": None}


def solve(G: Matrix, epsilon: float) -> Vector:
    """The weights of a convex solver."""
    n = len(G)
    w = cvxpy.Variable(n, nonneg=True)
    root = np.linalg.cholesky(G + 1e-12 * np.eye(n)).T
    near = [cvxpy.sum(w) == 1, cvxpy.abs(w - 1 / n) <= epsilon]
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(root @ w)), near).solve(solver="CLARABEL")
    return np.asarray(w.value)


def gradients(problem: Problem) -> Tensor:
    """∇f_i(0) = -c_i of ½ ||x - c_i||²."""
    return torch.stack([-targets.mean(dim=0) for _, targets in problem.clients])


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.15, 1.0])
def test_a_step_is_that_of_a_convex_solver(epsilon: float) -> None:
    problem = one_objective()
    g = torch.nn.functional.normalize(gradients(problem), dim=1)
    expected = 0.5 * g.T @ torch.from_numpy(solve((g @ g.T).numpy(), epsilon))
    result = fit(problem, FedMGDAPlus(epsilon=epsilon, **ONE_STEP), 1, engine=Local())
    assert torch.allclose(-result.model.get_parameter("x").detach(), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_are_those_of_a_convex_solver(seed: int) -> None:
    J = np.random.default_rng(seed).normal(size=(8, 5)) + 0.5  # fewer dimensions than objectives: G is singular
    G = J @ J.T
    w = NearEqual(0.08)(np.full(8, 1 / 8), G)
    assert w @ G @ w == pytest.approx(solve(G, 0.08) @ G @ solve(G, 0.08), abs=1e-6)
    assert np.abs(w - 1 / 8).max() <= 0.08 + 1e-9
    free = NearEqual(1.0)(np.full(8, 1 / 8), G)
    least = MinNorm()(np.full(8, 1 / 8), G)
    assert free @ G @ free == pytest.approx(least @ G @ least, abs=1e-6)


def test_a_client_with_a_huge_update_moves_the_model_no_further_than_the_others() -> None:
    problem = one_objective()
    inputs, targets = problem.clients[0]
    problem.clients = [(inputs, 1e6 * targets), *problem.clients[1:]]
    result = fit(problem, FedMGDAPlus(**ONE_STEP), 1, engine=Local())
    assert result.model.get_parameter("x").norm() <= 0.5
    assert result.history[0].notes["largest_client_weight"] <= 1 / 5 + 0.1 + 1e-9


def test_every_engine_gives_the_same_bits(tmp_path: Path) -> None:
    problem, method = classification(), FedMGDAPlus(local_steps=3, batch_size=8)
    engines: list[Engine] = [Local(), Pool(workers=2), Remote(Loopback(tmp_path, problem, method))]
    runs = [fit(problem, method, 2, clients_per_round=5, engine=engine) for engine in engines]
    assert_same(*runs)
    assert runs[0].history[0].up["train"] == pytest.approx(5 * 4 * 110, rel=0.5)  # one update a client, as in FedAvg


def test_clients_that_own_nothing_are_left_out() -> None:
    problem = one_objective()
    step = fit(problem, FedMGDAPlus(**ONE_STEP), 1, engine=Local()).model.get_parameter("x")
    nothing = (torch.zeros(4, 1), {"other": torch.zeros(4)})
    labelled = [(x, {"distance": targets}) for x, targets in problem.clients]
    more = Problem(problem.model, problem.objectives, [*labelled, nothing])
    assert torch.allclose(fit(more, FedMGDAPlus(**ONE_STEP), 1, engine=Local()).model.get_parameter("x"), step)


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="epsilon must be from 0 to 1, but got 2"):
        FedMGDAPlus(epsilon=2.0)
    with pytest.raises(ValueError, match="differential privacy takes sums"):
        fit(
            one_objective(),
            FedMGDAPlus(**ONE_STEP),
            1,
            stages=[DifferentialPrivacy(epsilon=1.0, delta=1e-5, noise=10.0)],
            engine=Local(),
        )
