"""Clients that own some objectives, of unequal weight: against the F_k computed in one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from campaign.loopback import Loopback
from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref, Objective, Problem, accuracy, fit
from fedcmoo.compression import Identity, TopK
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.gram import Exact, Gram, OneWay, Sketch, TwoWay, Unbiased
from fedcmoo.gram.base import gram_matrix
from fedcmoo.methods import METHODS, Method
from fedcmoo.weights import FindWeightsPref, MinNorm
from fedcmoo.weights.min_norm import min_norm
from tests.core.problems import Point, TwoHeads, quadratics
from tests.core.runs import assert_same
from tests.gram.test_estimators import estimate

M, D, N = 3, 5, 7


def squared_distance(x: Tensor, centre: Tensor) -> Tensor:
    return 0.5 * (x - centre).square().sum(dim=1).mean()


def partly_labelled(seed: int) -> Problem:
    """Quadratics with random owners and random weights; every objective has an owner, and client 0 owns nothing."""
    g = torch.Generator().manual_seed(seed)
    owned = torch.rand(N, M, generator=g) < 0.5
    owned[0], owned[1] = False, True
    clients = []
    for i in range(N):
        centres = {f"f{k}": torch.randn(4, D, generator=g, dtype=torch.float64) for k in range(M) if owned[i, k]}
        clients.append((torch.zeros(4, 1), centres or {"other": torch.zeros(4)}))
    weights = (0.5 + 3 * torch.rand(N, generator=g)).tolist()
    problem = Problem(Point(D), [Objective(f"f{k}", squared_distance) for k in range(M)], clients, weights=weights)
    with torch.no_grad():
        problem.model.get_parameter("x").copy_(torch.randn(D, generator=g))
    return problem


def central(problem: Problem) -> tuple[Tensor, Tensor]:
    """F [M] and its gradients [M, d], in one place: Σ p_i f_{i,k} / Σ p_i over the clients with the label."""
    x = torch.cat([p.detach().reshape(-1) for p in problem.model.parameters()]).requires_grad_()
    F = []
    for k in range(problem.M):
        owners = [(p, t[f"f{k}"]) for p, (_, t) in zip(problem.weights, problem.clients, strict=True) if f"f{k}" in t]
        p = torch.tensor([p for p, _ in owners], dtype=torch.float64)
        F.append(p @ torch.stack([squared_distance(x, centres) for _, centres in owners]) / p.sum())
    return torch.stack(F).detach(), torch.stack([torch.autograd.grad(F_k, x)[0] for F_k in F])


def step(problem: Problem, method: Method, **settings: Any) -> Tensor:
    """What one round with all clients subtracts from x."""
    result = fit(problem, method, 1, clients_per_round=problem.N, engine=Local(), **settings)
    before, after = (torch.cat([p.detach().reshape(-1) for p in m.parameters()]) for m in (problem.model, result.model))
    return before - after


ONE_STEP: dict[str, Any] = {"client_lr": 0.1, "server_lr": 1.0, "local_steps": 1, "batch_size": None}
FULL: list[Gram] = [Exact(), Sketch(budget=40, bits=32), OneWay(Identity(), 40), TwoWay(Identity(), 40)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gram", [*FULL, Unbiased(Identity(), 40)], ids=lambda gram: type(gram).__name__)
def test_fedcmoo_with_one_exact_step_is_an_mgda_step_on_the_central_objectives(gram: Gram, seed: int) -> None:
    problem = partly_labelled(seed)
    _, J = central(problem)
    w = torch.from_numpy(min_norm(gram_matrix(J)))
    moved = step(problem, FedCMOO(gram=gram, weights=MinNorm(), **ONE_STEP))
    assert torch.allclose(moved, 0.1 * J.T @ w, atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", [FSMGDA(**ONE_STEP), MGDA(server_lr=0.1)], ids=lambda m: type(m).__name__)
def test_fsmgda_and_mgda_take_the_same_step(method: Method) -> None:
    problem = partly_labelled(seed=3)
    _, J = central(problem)
    assert torch.allclose(step(problem, method), 0.1 * J.T @ torch.from_numpy(min_norm(gram_matrix(J))), atol=1e-6)


def test_fedavg_takes_a_gradient_step_on_the_weighted_central_objectives() -> None:
    problem = partly_labelled(seed=4)
    _, J = central(problem)
    w = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    assert torch.allclose(step(problem, FedAvg(weights=w.tolist(), **ONE_STEP)), 0.1 * J.T @ w, atol=1e-9)


def test_local_steps_are_no_longer_where_an_objective_has_few_owners() -> None:
    """The step is the sum over objectives of their owners' mean updates, each trained on w_k f_k with the plain rate.

    K steps of length a from 0 towards a centre c end at (1 - (1 - a)^K) c. One of five clients owns f0, so P / P_0 = 5:
    with steps of 5 · w_0 · 0.9 it would diverge.
    """
    centres = torch.randn(5, D, dtype=torch.float64)
    names = ["f0", "f1", "f1", "f1", "f1"]
    clients = [(torch.zeros(1, 1), {name: centre[None]}) for name, centre in zip(names, centres, strict=True)]
    problem = Problem(Point(D), [Objective(name, squared_distance) for name in ("f0", "f1")], clients)
    lr, K = 0.9, 20
    gone = 1 - (1 - lr / 2) ** K
    moved = step(problem, FedAvg(client_lr=lr, local_steps=K, batch_size=None))
    assert torch.allclose(moved, -gone * (centres[0] + centres[1:].mean(dim=0)))


@pytest.mark.parametrize("losses", ["all", "batch"])
def test_pref_sees_the_central_losses(losses: Any) -> None:
    problem = partly_labelled(seed=5)
    F, J = central(problem)
    w, kl, _ = FindWeightsPref()(np.ones(M), F.numpy(), gram_matrix(J))
    result = fit(problem, FedCMOOPref(gram=Exact(), losses=losses, **ONE_STEP), 1, clients_per_round=N, engine=Local())
    assert result.history[0].notes["kl"] == pytest.approx(kl, abs=1e-9)
    assert list(result.history[0].weights.values()) == pytest.approx(w.tolist(), abs=1e-6)


def test_the_two_way_estimate_is_its_formula_with_weighted_gradients() -> None:
    """Appendix B's expansion for p_i h_i, with the entries of largest magnitude of each as ĥ_i."""
    problem = partly_labelled(seed=6)
    compressor, budget = TopK(), 4 * D
    x = problem.model.get_parameter("x").detach()
    p = torch.tensor(problem.weights, dtype=torch.float64)
    rows = [[x - t[f"f{k}"].mean(0) if f"f{k}" in t else 0 * x for k in range(M)] for _, t in problem.clients]
    h = p[:, None, None] * torch.stack([torch.stack(r) for r in rows])  # [N, M, d]

    def compress(a: Tensor) -> Tensor:
        payload = compressor.encode(a, budget, torch.Generator())
        return compressor.decode(payload, (M, D), budget, "test").to(a)

    def products(a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum("imd,ind->mn", a, b)

    hat = torch.stack([compress(a) for a in h])
    total = hat.sum(0)
    compressed = total @ total.T - products(hat, hat)
    mixed = products(h - hat, compress(total) - hat)
    P_k = (p[:, None] * torch.tensor([[f"f{k}" in t for k in range(M)] for _, t in problem.clients])).sum(0)
    G = (products(h, h) + compressed + mixed + mixed.T) / torch.outer(P_k, P_k)
    assert not torch.equal(h, hat)
    assert np.allclose(estimate(TwoWay(compressor, 1.0), problem), G.numpy(), atol=1e-5)


def test_weights_by_samples_are_those_of_the_pooled_data() -> None:
    g = torch.Generator().manual_seed(0)
    clients = [(torch.zeros(n, 1), {"f": torch.randn(n, D, generator=g, dtype=torch.float64)}) for n in (1, 5, 40)]
    problem = Problem(Point(D), [Objective("f", squared_distance)], clients, weights="samples")
    pooled = torch.cat([targets["f"] for _, targets in clients]).mean(dim=0)
    assert torch.allclose(step(problem, FedAvg(**ONE_STEP)), -0.1 * pooled)


def two_classes(owned: list[tuple[bool, bool]], samples: int = 30) -> Problem:
    """Two classifications, with None as the target of what a client does not own."""
    g = torch.Generator().manual_seed(1)

    def draw(keep: tuple[bool, bool]) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        labels = torch.randint(0, 3, (2, samples), generator=g)
        return torch.randn(samples, 6, generator=g), tuple(a if k else None for a, k in zip(labels, keep, strict=True))

    objectives = [Objective(name, cross_entropy, [accuracy]) for name in ("first", "second")]
    return Problem(TwoHeads(), objectives, [draw(keep) for keep in owned], test=draw((True, True)))


OWNED = [(True, False), (True, False), (False, True), (True, True), (False, True), (True, False)]
SMALL: dict[str, Any] = {"local_steps": 3, "batch_size": 8}


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_every_engine_gives_the_same_bits(kind: type[Method], tmp_path: Path) -> None:
    method = MGDA() if kind is MGDA else kind(**SMALL)
    problem = two_classes(OWNED)
    problem.weights = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0]
    engines: list[Engine] = [Local(), Remote(Loopback(tmp_path, problem, method, nodes=3))]
    if kind in (FedCMOO, FSMGDA):  # one for each kind of local training, since processes start slowly
        engines.append(Pool(workers=2))
    runs = [fit(problem, method, 3, clients_per_round=4, engine=engine, evaluate_every=1) for engine in engines]
    assert_same(*runs)


@pytest.mark.parametrize(
    "method", [FedCMOO(**SMALL), FSMGDA(**SMALL), FedAvg(**SMALL), MGDA()], ids=lambda m: type(m).__name__
)
def test_an_objective_without_an_owner_in_the_cohort_is_left_out_of_the_round(method: Method) -> None:
    problem = two_classes([(True, False)] * 2)
    result = fit(problem, method, 2, engine=Local())
    for record in result.history:
        assert record.weights == {"first": 0.5, "second": 0.5}  # as before
        assert record.notes["left_out"] == 0.5
    before, after = problem.model.state_dict(), result.model.state_dict()
    assert torch.equal(before["heads.1.weight"], after["heads.1.weight"])
    assert not torch.equal(before["heads.0.weight"], after["heads.0.weight"])


def test_the_rule_weighs_the_objectives_that_have_an_owner() -> None:
    """The third keeps its weight; the step is that of the first two, whose weights sum up to the rest."""
    problem = partly_labelled(seed=7)
    problem.clients = [(x, {k: c for k, c in t.items() if k != "f2"} or {"other": x}) for x, t in problem.clients]
    two = replace(problem, objectives=problem.objectives[:2])
    _, J = central(two)
    w = torch.from_numpy(2 / 3 * min_norm(gram_matrix(J)))
    for method in (FedCMOO(gram=Exact(), weights=MinNorm(), **ONE_STEP), FSMGDA(**ONE_STEP)):
        result = fit(problem, method, 1, clients_per_round=N, engine=Local())
        assert list(result.history[0].weights.values()) == pytest.approx([*w.tolist(), 1 / 3])
        assert torch.allclose(step(problem, method), 0.1 * J.T @ w, atol=1e-9)


def test_one_trip_weighs_the_objectives_that_have_an_owner() -> None:
    """After a round of client 0 alone, which does not own f2, this keeps its weight and the others change theirs."""
    problem = replace(quadratics(M, clients=2), owns=[["f0", "f1"], ["f0", "f1", "f2"]])
    method = FedCMOO(gram=Exact(), weights=MinNorm(), trips=1, **ONE_STEP)
    history = fit(problem, method, 10, clients_per_round=1, engine=Local()).history
    partial = [(now, after) for now, after in pairwise(history) if now.cohort == [0]]
    assert partial
    for now, after in partial:
        assert "gram_dropped" not in now.notes
        assert now.gram is None
        assert after.weights["f2"] == now.weights["f2"]
        assert sum(after.weights.values()) == pytest.approx(1)
    assert any(now.weights != after.weights for now, after in partial)


@pytest.mark.parametrize("trips", [1, 2])
def test_pref_keeps_its_weights_without_an_owner_of_some_objective(trips: Any) -> None:
    owns = [["f0", "f1"], ["f0", "f1", "f2"]]
    weights: Any = np.array([1.0, 2.0])
    problem = replace(quadratics(M, clients=2), owns=owns, weights=weights)
    method = FedCMOOPref(gram=Exact(), preference=(1, 2, 3), trips=trips, **ONE_STEP)
    history = fit(problem, method, 10, clients_per_round=1, engine=Local()).history
    assert all("gram_dropped" not in record.notes for record in history)
    kept = [(before, now) for before, now in pairwise(history) if (before if trips == 1 else now).cohort == [0]]
    assert all(now.weights == before.weights for before, now in kept)
    assert any(now.weights != history[0].weights for _, now in kept)


def test_data_to_evaluate_on_needs_every_label() -> None:
    problem = two_classes(OWNED)
    inputs, (first, second) = problem.clients[3]
    problem = Problem(problem.model, problem.objectives, problem.clients, test=(inputs, (first, second * 0 - 1)))
    with pytest.raises(ValueError, match="must have labels for every objective, but has none for 'second'"):
        fit(problem, FedAvg(**SMALL), 1, engine=Local())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"owns": [["first"]]}, r"one entry per client \(6\), but has 1"),
        ({"owns": [["third"]] * 6}, r"must name objectives \(first, second\), but has 'third'"),
        ({"owns": [["first"]] * 6}, "every objective must have an owner, but 'second' has none"),
        ({"weights": "size"}, "'equal', 'samples' or one number per client, but got 'size'"),
        ({"weights": [1.0] * 5}, r"positive numbers, one per client \(6\)"),
        ({"weights": [1.0] * 5 + [0.0]}, r"positive numbers, one per client \(6\)"),
    ],
)
def test_wrong_settings(settings: Any, error: str) -> None:
    problem = two_classes(OWNED)
    with pytest.raises(ValueError, match=error):
        Problem(problem.model, problem.objectives, problem.clients, **settings)


def test_a_client_that_is_said_to_own_what_it_has_no_target_for() -> None:
    problem = two_classes(OWNED)
    problem = Problem(problem.model, problem.objectives, problem.clients, owns=[["first", "second"]] * 6)
    with pytest.raises(ValueError, match="no entry for objective 'second'"):
        fit(problem, FedAvg(**SMALL), 1, engine=Local())
