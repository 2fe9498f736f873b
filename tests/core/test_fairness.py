"""Clients, or groups of them, as objectives."""

from __future__ import annotations

import pytest
import torch

from fedcmoo import FedCMOO, Objective, Problem, fit
from fedcmoo.engines import Local
from fedcmoo.fairness import client_objectives
from fedcmoo.gram import Exact
from fedcmoo.gram.base import gram_matrix
from fedcmoo.weights import MinNorm
from fedcmoo.weights.min_norm import min_norm
from tests.core.problems import Point, classification
from tests.core.test_ownership import ONE_STEP, D, squared_distance

GROUPS = ["a", "b", "a", "c", "b"]


def one_objective() -> Problem:
    g = torch.Generator().manual_seed(0)
    clients = [(torch.zeros(4, 1), torch.randn(4, D, generator=g, dtype=torch.float64) + i) for i in range(5)]
    return Problem(Point(D), [Objective("distance", squared_distance)], clients)


def moved(problem: Problem, cohort: int) -> tuple[torch.Tensor, list[int]]:
    """What a round subtracts from x = 0, and its clients."""
    method = FedCMOO(gram=Exact(), weights=MinNorm(), **ONE_STEP)
    result = fit(problem, method, 1, clients_per_round=cohort, engine=Local())
    return -result.model.get_parameter("x").detach(), result.history[0].cohort


@pytest.mark.parametrize("groups", [GROUPS, None])
def test_a_step_is_the_min_norm_step_of_the_groups(groups: list[str] | None) -> None:
    """Objective k is ½ ||x - c_k||² with the mean c_k of the group's points, so its gradient at 0 is -c_k."""
    problem = one_objective()
    centres = torch.stack([targets.mean(dim=0) for _, targets in problem.clients])
    if groups is not None:
        member = torch.tensor([[g == name for g in groups] for name in "abc"], dtype=torch.float64)
        centres = member @ centres / member.sum(dim=1, keepdim=True)
    w = torch.from_numpy(min_norm(gram_matrix(centres)))
    step, _ = moved(client_objectives(problem, groups), cohort=5)
    assert torch.allclose(step, -0.1 * centres.T @ w, atol=1e-6)


def test_a_cohort_takes_the_min_norm_step_of_its_own_clients() -> None:
    """Two of five clients: a step of two fifths of the weights, shared out between them."""
    problem = one_objective()
    step, cohort = moved(client_objectives(problem), cohort=2)
    centres = torch.stack([problem.clients[i][1].mean(dim=0) for i in cohort])
    w = 2 / 5 * torch.from_numpy(min_norm(gram_matrix(centres)))
    assert torch.allclose(step, -0.1 * centres.T @ w, atol=1e-6)


def test_groups_are_evaluated_on_their_clients_own_data() -> None:
    problem = one_objective()
    problem.client_test = [None, *problem.clients[1:]]
    result = fit(client_objectives(problem, GROUPS), FedCMOO(**ONE_STEP), 1, engine=Local())
    found, x = result.history[0].client_test, result.model.get_parameter("x").detach()
    losses = [squared_distance(x, targets).item() for _, targets in problem.clients]
    assert found is not None
    means = [found[name]["loss"]["mean"] for name in "abc"]
    assert means == pytest.approx([losses[2], (losses[1] + losses[4]) / 2, losses[3]])


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="one objective, but got 2"):
        client_objectives(classification())
    with pytest.raises(ValueError, match=r"one name per client \(5\), but has 1"):
        client_objectives(one_objective(), ["a"])
