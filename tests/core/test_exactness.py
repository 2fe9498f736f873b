"""Methods against closed forms and against each other."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, Problem, fit
from fedcmoo.engines import Local
from fedcmoo.gram import Exact
from fedcmoo.weights import FindWeights, MinNorm
from fedcmoo.worker import Worker
from tests.core.problems import centres, classification, quadratics


def final(problem: Problem, **settings: object) -> torch.Tensor:
    result = fit(problem, **settings)  # type: ignore[arg-type]
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


@pytest.mark.parametrize("M", [2, 3, 5])
def test_fedcmoo_with_one_exact_step_is_an_mgda_step(M: int) -> None:
    problem = quadratics(M=M, d=4)
    fedcmoo = FedCMOO(client_lr=0.1, server_lr=1.0, local_steps=1, batch_size=None, gram=Exact(), weights=MinNorm())
    everyone = problem.N
    x = final(problem, method=fedcmoo, rounds=7, clients_per_round=everyone)
    y = final(problem, method=MGDA(server_lr=0.1), rounds=7)
    assert torch.allclose(x, y, atol=1e-6, rtol=0)


def test_mgda_reaches_the_pareto_set() -> None:
    """At the end 0 is a convex combination of the gradients, so x is in the hull of the centres: on their line,
    between."""
    problem = quadratics(M=2, d=5)
    x = final(problem, method=MGDA(server_lr=0.5), rounds=60)
    a, b = centres(problem)
    t = float((x - a) @ (b - a) / (b - a).square().sum())
    assert 0 <= t <= 1
    assert torch.allclose(x, a + t * (b - a), atol=1e-6)


def test_an_mgda_step_has_the_closed_form_of_two_objectives() -> None:
    problem = quadratics(M=2, d=5, seed=3)
    a, b = centres(problem)  # gradients at x = 0 are -a and -b
    w = min(1.0, max(0.0, float((b @ (b - a)) / (a - b).square().sum())))  # argmin ||w a + (1 - w) b||
    x = final(problem, method=MGDA(server_lr=0.1), rounds=1)
    assert torch.allclose(x, 0.1 * (w * a + (1 - w) * b), atol=1e-9)


def test_stochastic_mgda_differs_from_mgda() -> None:
    problem = quadratics()
    assert not torch.equal(
        final(problem, method=MGDA(server_lr=0.1, batch_size=1), rounds=1),
        final(problem, method=MGDA(server_lr=0.1), rounds=1),
    )


@pytest.mark.parametrize("make", [quadratics, classification])
def test_beta_zero_is_fedavg_on_the_average_loss(make) -> None:  # type: ignore[no-untyped-def]
    problem = make()
    common: dict[str, Any] = {"client_lr": 0.1, "local_steps": 4, "batch_size": 3}
    x = final(
        problem, method=FedCMOO(gram=Exact(), weights=FindWeights(beta=0), **common), rounds=3, clients_per_round=4
    )
    y = final(problem, method=FedAvg(**common), rounds=3, clients_per_round=4)
    assert torch.allclose(x, y, atol=1e-6)
    assert not torch.allclose(x, torch.cat([p.reshape(-1) for p in problem.model.parameters()]), atol=1e-3)


def test_fedavg_is_the_average_of_plain_sgd_runs() -> None:
    """One round, against clients trained one by one with torch.optim on the whole data."""
    problem = quadratics(M=2, clients=3)
    expected = []
    for inputs, targets in problem.clients:
        model = copy.deepcopy(problem.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            sum(0.5 * o.loss(model(inputs), targets) for o in problem.objectives).backward()  # type: ignore[union-attr]
            optimizer.step()
        expected.append(torch.cat([p.detach() for p in model.parameters()]))
    method = FedAvg(client_lr=0.1, server_lr=1.0, local_steps=5, batch_size=None)
    x = final(problem, method=method, rounds=1, clients_per_round=3)
    assert torch.allclose(x, torch.stack(expected).mean(dim=0), atol=1e-9)


def test_fsmgda_with_one_objective_is_fedavg() -> None:
    problem = quadratics(M=1)
    common: dict[str, Any] = {"client_lr": 0.1, "local_steps": 3, "batch_size": 2}
    x = final(problem, method=FSMGDA(**common), rounds=4, clients_per_round=3)
    assert torch.allclose(x, final(problem, method=FedAvg(**common), rounds=4, clients_per_round=3), atol=1e-9)


@pytest.mark.parametrize(("batch_size", "equal"), [(None, True), (1, False)])
def test_fsmgda_trains_every_objective_on_batches_of_its_own(batch_size: int | None, equal: bool) -> None:
    """Two copies of one objective have equal updates if batches are the whole data, and different ones otherwise."""
    problem = quadratics(M=1)
    twins = replace(problem, objectives=[replace(problem.objectives[0], name=name) for name in ("a", "b")])
    result = fit(twins, FSMGDA(local_steps=3, batch_size=batch_size), 1, clients_per_round=3, engine=Local())
    (own, cross), (_, other) = result.history[0].gram  # type: ignore[misc]
    assert (own == other == cross) is equal


def test_fsmgda_with_one_exact_step_is_an_mgda_step() -> None:
    problem = quadratics(M=3)
    method = FSMGDA(client_lr=0.1, server_lr=1.0, local_steps=1, batch_size=None)
    x = final(problem, method=method, rounds=5, clients_per_round=problem.N)
    assert torch.allclose(x, final(problem, method=MGDA(server_lr=0.1), rounds=5), atol=1e-6)


def test_fedavg_with_fixed_weights_goes_where_they_say() -> None:
    problem = quadratics(M=2)
    method = FedAvg(client_lr=0.2, local_steps=5, batch_size=None, weights=[1, 3])
    x = final(problem, method=method, rounds=40, clients_per_round=problem.N)
    a, b = centres(problem)
    assert torch.allclose(x, 0.25 * a + 0.75 * b, atol=1e-6)


def test_the_jacobian_is_that_of_torch_func() -> None:
    """h_i against one gradient at a time from torch.func, on a model without randomness."""
    problem = classification(dropout=0.0)
    problem.transform = None
    worker = Worker(problem, {}, seed=0)
    J = worker.client(worker.model.state, round=0, i=2).jacobian(None)
    inputs, targets = problem.clients[2]
    module = copy.deepcopy(problem.model).train()
    for k in range(2):
        loss = problem.objectives[k].loss(module(inputs)[k], targets[k])
        named = [(n, p) for n, p in module.named_parameters()]
        grads = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
        by_name = {n: g if g is not None else torch.zeros_like(p) for (n, p), g in zip(named, grads, strict=True)}
        order = sorted(by_name, key=lambda n: not n.startswith("encoder"))
        assert torch.allclose(J[k], torch.cat([by_name[n].reshape(-1) for n in order]), atol=1e-6)
    assert worker.sizes.d_shared == sum(p.numel() for n, p in module.named_parameters() if n.startswith("encoder"))
