"""Drift corrections on quadratics with different curvatures at clients, where FedAvg ends in the wrong place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcmoo import Callback, FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.callbacks import Training
from fedcmoo.compression import Rotated
from fedcmoo.contributions import check_channels
from fedcmoo.drift import MVR, Drift, FedCM, FedProx, Scaffold, Storm
from fedcmoo.gram import Exact
from fedcmoo.history import Record
from fedcmoo.methods import FSMGDAMVR
from fedcmoo.optimizers import SGD, GradientAt
from fedcmoo.parameters import State
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.robust import TrimmedMean
from fedcmoo.privacy.secure.stage import Secure
from fedcmoo.weights import MinNorm
from fedcmoo.worker import Worker
from tests.core.problems import Point, classification

N, D, K, LR = 5, 3, 8, 0.1


class Curved:
    """½ Σ_j a_j (x_j - c_j)², with the samples' own a and c (targets [B, M, 2, d])."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        a, c = targets[:, self.k].unbind(dim=1)
        return 0.5 * (a * (x - c).square()).sum(dim=1).mean()


def curved(M: int = 1) -> Problem:
    """One sample a client: f_{i,k}(x) = ½ Σ_j a_j (x_j - c_j)²."""
    g = torch.Generator().manual_seed(1)
    a = 0.2 + 2 * torch.rand(N, M, D, generator=g, dtype=torch.float64)
    c = torch.randn(N, M, D, generator=g, dtype=torch.float64)
    data = [(torch.zeros(1, 1), torch.stack([a[i], c[i]], dim=1)[None]) for i in range(N)]
    return Problem(Point(D), [Objective(f"f{k}", Curved(k)) for k in range(M)], data, test=data[0])


def optimum(problem: Problem, w: Tensor) -> Tensor:
    """The minimiser of Σ_k w_k F_k."""
    a, c = torch.cat([targets for _, targets in problem.clients]).mul(1.0).unbind(dim=2)  # [N, M, d]
    a = a * w[:, None]
    return (a * c).sum(dim=(0, 1)) / a.sum(dim=(0, 1))


def final(problem: Problem, drift: Drift, rounds: int, clients: int = N, **settings: object) -> Tensor:
    method = FedAvg(client_lr=LR, local_steps=K, batch_size=None, drift=drift, **settings)  # type: ignore[arg-type]
    model = fit(problem, method, rounds=rounds, clients_per_round=clients).model
    return next(model.parameters()).detach()


@pytest.mark.parametrize("clients", [N, 2])
def test_scaffold_reaches_the_optimum_where_fedavg_does_not(clients: int) -> None:
    problem = curved()
    best = optimum(problem, torch.ones(1, dtype=torch.float64))
    assert (final(problem, Scaffold(), 60, clients) - best).norm() < 1e-3
    assert (final(problem, Drift(), 60, clients) - best).norm() > 0.02


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ({"update": Rotated(), "update_budget": 3.0}, {}, "updates are compressed"),
        ({}, {"stages": [Clip(0.2)]}, "Clip changes them"),
        ({}, {"stages": [TrimmedMean()]}, "TrimmedMean changes them"),
        ({}, {"stages": [Secure(bits=16, bound=1.0)]}, "Secure changes them"),
        ({}, {"weights": [1.0, 1.0, 1.0, 1.0, 8.0]}, "clients have different weights"),
    ],
    ids=["compressed", "clipped", "robust", "few bits", "weights"],
)
def test_scaffold_refuses_means_that_its_variates_would_not_follow(
    settings: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    """Each of them would leave the run a constant distance from the optimum."""
    weights, options = options.get("weights", [2.0] * N), {key: options[key] for key in options if key != "weights"}
    problem, method = replace(curved(), weights=weights), FedAvg(drift=Scaffold(), **settings)
    with pytest.raises(ValueError, match=f"Scaffold needs the exact mean update .* but .*{reason}; take another"):
        fit(problem, method, 1, **options)
    check_channels(
        replace(method, drift=FedCM()).channels(options.get("stages", ())), curved(), N, Worker(problem, {}, 0).sizes
    )


def test_scaffold_with_min_norm_weights_reaches_the_pareto_set() -> None:
    """Where the weights of the rule end, the point minimises the loss with these weights."""
    problem = curved(M=2)
    method = FedCMOO(client_lr=LR, local_steps=K, batch_size=None, gram=Exact(), weights=MinNorm(), drift=Scaffold())
    result = fit(problem, method, rounds=80, clients_per_round=N)
    w = torch.tensor(list(result.history[-1].weights.values()), dtype=torch.float64)
    x = next(result.model.parameters()).detach()
    assert (x - optimum(problem, w)).norm() < 1e-3


def test_a_client_without_weighted_objectives_has_a_variate_of_zero() -> None:
    """Client 0 owns f1 alone, which has no weight: the gradient that its variate estimates is zero."""
    problem = replace(curved(M=2), owns=[["f1"], *[["f0", "f1"]] * (N - 1)])
    variates: list[Tensor] = []

    class Watch(Callback):
        def on_start(self, training: Training) -> None:
            self.server = training.server

        def after_round(self, record: Record) -> None:
            variates.append(self.server.client_states[0]["scaffold"])

    method = FedAvg(client_lr=LR, local_steps=K, batch_size=None, drift=Scaffold(), weights=(1, 0))
    fit(problem, method, 4, clients_per_round=N, callbacks=[Watch()])
    assert torch.stack(variates).abs().max() < 1e-12


def test_scaffold_uploads_no_more_than_fedavg() -> None:
    problem = curved()
    method = FedAvg(local_steps=K, batch_size=None)
    plain = fit(problem, method, rounds=1).history[0]
    corrected = fit(problem, FedAvg(local_steps=K, batch_size=None, drift=Scaffold()), rounds=1).history[0]
    assert corrected.up == plain.up
    assert 0 < corrected.down["train"] - plain.down["train"] - N * D * 8 < N * 20  # a name in the header


def test_fedprox_ends_where_the_proximal_steps_end() -> None:
    """One round of one client: y <- y - η (a (y - c) + mu (y - x)), written out from x = 0."""
    problem = curved()
    problem.clients = problem.clients[:1]
    a, c = problem.clients[0][1][0, 0]
    y = torch.zeros(D, dtype=torch.float64)
    for _ in range(K):
        y = y - LR * (a * (y - c) + 0.5 * y)
    assert torch.allclose(final(problem, FedProx(mu=0.5), 1, clients=1), y, atol=1e-12)


def test_fedcm_blends_the_last_rounds_direction_into_every_step() -> None:
    problem = curved()
    a, c = torch.cat([targets[:, 0] for _, targets in problem.clients]).unbind(dim=1)  # [N, d] each
    x, m, beta = torch.zeros(D, dtype=torch.float64), None, 0.0
    for _ in range(3):
        y = x.expand(N, D)
        for _ in range(K):
            g = a * (y - c)
            y = y - LR * (g if m is None else (1 - beta) * g + beta * m)
        m, beta = (x - y.mean(dim=0)) / (K * LR), 0.7
        x = y.mean(dim=0)
    assert torch.allclose(final(problem, FedCM(beta=0.7), 3), x, atol=1e-12)


def test_fedcm_ends_where_fedavg_with_a_smaller_rate_ends() -> None:
    """At the end m = 0: x = Σ_i s_i c_i / Σ_i s_i with s_i = 1 - (1 - (1 - β) η a_i)^K, closer to the optimum."""
    problem, beta = curved(), 0.9
    a, c = torch.cat([targets[:, 0] for _, targets in problem.clients]).unbind(dim=1)
    s = 1 - (1 - (1 - beta) * LR * a) ** K
    x = final(problem, FedCM(beta=beta), 300)
    assert torch.allclose(x, (s * c).sum(dim=0) / s.sum(dim=0), atol=1e-9)
    best = optimum(problem, torch.ones(1, dtype=torch.float64))
    assert (x - best).norm() < 0.2 * (final(problem, Drift(), 300) - best).norm()


@pytest.mark.parametrize("drift", [Scaffold(), FedCM(), Storm(), MVR()])
def test_corrections_of_directions_need_plain_steps(drift: Drift) -> None:
    with pytest.raises(ValueError, match="SGD without momentum"):
        FedCMOO(drift=drift, optimizer=SGD(momentum=0.9))


def test_storm_carries_its_direction_from_step_to_step() -> None:
    """v_k = g(y_k) + β (v_{k-1} - g(y_{k-1})), from v_0 = (1 - β) g(x) + β m, with exact gradients."""
    problem, beta = curved(), 0.7
    a, c = torch.cat([targets[:, 0] for _, targets in problem.clients]).unbind(dim=1)
    x, m = torch.zeros(D, dtype=torch.float64), None
    for _ in range(3):
        y = x.expand(N, D)
        g = a * (y - c)
        v = g if m is None else (1 - beta) * g + beta * m
        for _ in range(K - 1):
            before, y = y, y - LR * v
            v = a * (y - c) + beta * (v - a * (before - c))
        y = y - LR * v
        m = (x - y.mean(dim=0)) / (K * LR)
        x = y.mean(dim=0)
    assert torch.allclose(final(problem, Storm(beta=beta), 3), x, atol=1e-12)


def test_a_gradient_elsewhere_has_the_same_batch_and_dropout_and_leaves_the_model_as_it_is() -> None:
    """At the client's own point it is the step's gradient; BatchNorm's statistics are those of training without it."""
    problem = classification()
    worker = Worker(problem, {}, seed=0)
    same = []

    def compare(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
        assert gradient_at is not None
        gradient_at(y + 1)
        same.append(torch.equal(gradient_at(y), grad))

    start, ends = worker.model.state, list[State]()
    for correct in (None, compare):
        worker.client(start, round=0, i=1).train([0.5, 0.5], 4, 0.1, SGD(), 8, correct=correct)
        ends.append(worker.model.state)
    assert same == [True] * 4
    assert all(torch.equal(a, b) for a, b in zip(vars(ends[0]).values(), vars(ends[1]).values(), strict=True))


def mvr_recursion(a: Tensor, c: Tensor, beta: float, rounds: int) -> tuple[Tensor, Tensor]:
    """x after some rounds of local steps along g(y) + β (m - g(x')), and the last m, for clients' a and c [N, d]."""
    x, last, m, share = torch.zeros(D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64), torch.zeros(D), 0.0
    for _ in range(rounds):
        y = x.expand(N, D)
        for _ in range(K):
            y = y - LR * (a * (y - c) + share * (m - a * (last - c)))
        m, last, share = (x - y.mean(dim=0)) / (K * LR), x, beta
        x = y.mean(dim=0)
    return x, m


def test_mvr_corrects_every_step_by_the_gradient_at_the_last_model() -> None:
    problem = curved()
    a, c = torch.cat([targets[:, 0] for _, targets in problem.clients]).unbind(dim=1)
    x, _ = mvr_recursion(a, c, 0.7, 3)
    assert torch.allclose(final(problem, MVR(beta=0.7), 3), x, atol=1e-12)


def test_fsmgda_m_vr_with_one_objective_is_the_same_recursion() -> None:
    problem = curved()
    a, c = torch.cat([targets[:, 0] for _, targets in problem.clients]).unbind(dim=1)
    method = FSMGDAMVR(client_lr=LR, local_steps=K, batch_size=None, beta=0.7)
    result = fit(problem, method, rounds=3, clients_per_round=N)
    assert torch.allclose(next(result.model.parameters()).detach(), mvr_recursion(a, c, 0.7, 3)[0], atol=1e-12)


def test_fsmgda_m_vr_keeps_a_direction_for_each_objective() -> None:
    """With two objectives the second round's G is that of two recursions from one model."""
    problem, beta = curved(M=2), 0.7
    method = FSMGDAMVR(client_lr=LR, local_steps=K, batch_size=None, beta=beta)
    history = fit(problem, method, rounds=2, clients_per_round=N).history
    x, rows = torch.zeros(D, dtype=torch.float64), []
    both = [torch.cat([targets[:, k] for _, targets in problem.clients]).unbind(dim=1) for k in range(2)]
    for a, c in both:
        rows.append(mvr_recursion(a, c, beta, 1)[1])
    w = torch.tensor(list(history[0].weights.values()), dtype=torch.float64)
    new, directions = x - K * LR * (w @ torch.stack(rows)), []
    for (a, c), m in zip(both, rows, strict=True):
        y = new.expand(N, D)
        for _ in range(K):
            y = y - LR * (a * (y - c) + beta * (m - a * (x - c)))
        directions.append((new - y.mean(dim=0)) / (K * LR))
    J = torch.stack(directions)
    assert torch.allclose(torch.tensor(history[1].gram, dtype=torch.float64), J @ J.T, atol=1e-10)


def test_fsmgda_m_vr_corrects_nothing_after_a_round_without_owners() -> None:
    """A direction of an older round does not belong to the last model, so there is none for that objective."""
    problem = replace(curved(M=2), owns=[["f0"], *[["f0", "f1"]] * (N - 1)])
    directions: list[tuple[list[int], Tensor]] = []

    class Watch(Callback):
        def on_start(self, training: Training) -> None:
            self.server = training.server

        def after_round(self, record: Record) -> None:
            directions.append((record.cohort, self.server.memory["fsmgda-m-vr"]))

    method = FSMGDAMVR(client_lr=LR, local_steps=K, batch_size=None)
    fit(problem, method, 12, clients_per_round=1, callbacks=[Watch()])
    assert {tuple(cohort) for cohort, _ in directions} >= {(0,), (1,)}
    for cohort, m in directions:
        assert m[0].any()
        assert bool(m[1].any()) == (cohort != [0])
