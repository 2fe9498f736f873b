"""Methods that measure leave training as it is, and measure what they say, on problems with closed forms."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from fedcmoo import FedCMOO, fit
from fedcmoo.engines import Local
from fedcmoo.gram import Exact
from fedcmoo.methods import FedCMOOT
from fedcmoo.reproduce.measuring import NOTE, WAYS, LocalProgress, MeasuredFedCMOOT, step_sizes
from fedcmoo.reproduce.valleys import Valleys
from fedcmoo.types import Matrix
from fedcmoo.weights import FindWeights, min_norm
from tests.core.problems import quadratics

SMALL = Valleys(clients=4, samples=3, dimensions=5)


@cache
def centres(problem: Valleys) -> Matrix:
    """Of all clients' samples, [N, n, M, d]."""
    return np.stack([client[0].double().numpy() for client in problem.build(0).clients])


def values_and_gradients(problem: Valleys, x: Matrix) -> tuple[Matrix, Matrix]:
    """F [M] and its gradients [M, d] by the formula, over everyone's data."""
    u = x - centres(problem)
    values = (u**2 / (1 + u**2)).sum(axis=-1).mean(axis=(0, 1))
    gradients = (2 * u / (1 + u**2) ** 2).mean(axis=(0, 1))
    return values, gradients


def test_valleys_are_what_their_docstring_says() -> None:
    rng = np.random.default_rng(0)
    bound = 3 * np.sqrt(3) / 8 * np.sqrt(SMALL.dimensions)
    for _ in range(200):
        x, y = 3 * rng.normal(size=(2, SMALL.dimensions))
        gx, gy = (values_and_gradients(SMALL, point)[1] for point in (x, y))
        assert (np.linalg.norm(gx - gy, axis=1) <= SMALL.L * np.linalg.norm(x - y)).all()
        assert (np.linalg.norm(gx, axis=1) <= bound).all()
    problem = SMALL.build(0)
    inputs = torch.cat([client[0] for client in problem.clients])
    model = problem.model(inputs)
    losses = [loss.item() for loss in problem.losses(model, torch.zeros(len(inputs)))]
    assert losses == pytest.approx(values_and_gradients(SMALL, start(SMALL))[0], rel=1e-5)


def start(problem: Valleys) -> Matrix:
    x: Matrix = problem.build(0).model.x.detach().double().numpy()  # type: ignore[operator]
    return x


@pytest.mark.parametrize("objectives", [2, 8])
def test_training_starts_at_a_pareto_stationary_minimum(objectives: int) -> None:
    problem = Valleys(objectives=objectives)
    values, gradients = values_and_gradients(problem, start(problem))
    assert np.linalg.norm(gradients, axis=1).min() > 0.01  # of no objective alone
    assert np.linalg.norm(gradients.mean(axis=0)) < 1e-6
    assert values.mean() < values_and_gradients(problem, np.zeros(problem.dimensions))[0].mean()


def test_valleys_are_not_convex() -> None:
    ends = np.array([[0.0] * 5, [50.0] * 5])
    middle = values_and_gradients(SMALL, ends.mean(axis=0))[0]
    assert (middle > np.mean([values_and_gradients(SMALL, end)[0] for end in ends], axis=0)).all()


def test_true_squared_norm_and_an_unchanged_run() -> None:
    settings = {"client_lr": 0.1, "server_lr": 1.5, "local_steps": 2, "batch_size": 2}
    weights = FindWeights(beta=0.1, iterations=1, scale_free=False)
    problem = SMALL.build(0)
    plain, measured = (
        fit(problem, method, 6, clients_per_round=2, engine=Local())
        for method in (
            FedCMOOT(weights=weights, **settings),  # type: ignore[arg-type]
            MeasuredFedCMOOT(weights=weights, measure_every=3, **settings),  # type: ignore[arg-type]
        )
    )
    assert [r.weights for r in plain.history] == [r.weights for r in measured.history]
    assert torch.equal(plain.model.x, measured.model.x)  # type: ignore[arg-type]
    assert [NOTE in r.notes for r in measured.history] == [False, True, False, False, True, False]
    after_one = fit(problem, FedCMOOT(weights=weights, **settings), 1, clients_per_round=2, engine=Local())  # type: ignore[arg-type]
    gradients = values_and_gradients(SMALL, after_one.model.x.detach().double().numpy())[1]  # type: ignore[operator]
    weighted = np.array(list(after_one.weights.values())) @ gradients
    assert measured.history[1].notes[NOTE] == pytest.approx(float(weighted @ weighted), rel=1e-4)


def test_step_sizes_are_the_corollarys() -> None:
    sizes = step_sizes(L=2.0, K=4, M=3, T=25)
    assert sizes["client_lr"] == pytest.approx(1 / (2 * 4 * 10))
    assert sizes["server_lr"] == 2.0
    assert sizes["weights"]["beta"] == pytest.approx(1 / 15)


def test_local_progress_in_closed_form_and_an_unchanged_run() -> None:
    problem = quadratics(M=2, d=3, clients=5)
    settings = {"client_lr": 0.4, "server_lr": 1.0, "local_steps": 1, "batch_size": None, "gram": Exact()}
    plain, measured = (
        fit(problem, method, 3, clients_per_round=4, engine=Local())
        for method in (
            FedCMOO(**settings),  # type: ignore[arg-type]
            LocalProgress(fsmgda_client_lr=0.1, measure_every=2, **settings),  # type: ignore[arg-type]
        )
    )
    assert torch.equal(plain.model.x, measured.model.x)  # type: ignore[arg-type]
    first = measured.history[0]
    assert [bool(r.notes.get("FedCMOO: loss reduction")) for r in measured.history] == [True, False, True]

    centres = np.stack([problem.clients[i][1].numpy().mean(axis=0) for i in first.cohort])  # [n, M, d]
    gradients = -centres  # at x = 0, [n, M, d]
    w = np.array(list(first.weights.values()))
    v = min_norm(np.einsum("kd,ld->kl", gradients.mean(axis=0), gradients.mean(axis=0)))

    def reduction(lr: float, weights: Matrix) -> float:
        """Mean over clients and objectives of f(0) - f(x) with x = -lr Σ_k w_k ∇f_k(0)."""
        x = -lr * np.einsum("k,nkd->nd", weights, gradients)[:, None]
        return float((np.square(centres) - np.square(x - centres)).sum(axis=-1).mean() / 2)

    expected = [reduction(0.4, w), reduction(0.1, v), reduction(0.4, v)]
    assert [first.notes[f"{way}: loss reduction"] for way in WAYS] == pytest.approx(expected)
    assert [first.notes[f"{way}: accuracy gain"] for way in WAYS] == [0, 0, 0]


@pytest.mark.parametrize("lr", [1e4, 36.3, 35.9], ids=["local losses", "Gram matrix", "final losses"])
def test_a_comparison_that_diverges_is_left_out_and_the_run_goes_on(lr: float) -> None:
    problem = quadratics(M=2, d=3, clients=5)
    common = {"server_lr": 1.0, "local_steps": 100, "batch_size": None, "gram": Exact()}
    method = LocalProgress(client_lr=0.1, fsmgda_client_lr=lr, **common)  # type: ignore[arg-type]
    measured = fit(problem, method, 3, clients_per_round=4, engine=Local())
    assert all(f"{WAYS[1]}: loss reduction" not in r.notes for r in measured.history)  # of the order |1 - lr|^100
    for way in (WAYS[0], WAYS[2]):
        assert all(np.isfinite(r.notes[f"{way}: loss reduction"]) for r in measured.history)
    plain = fit(problem, FedCMOO(client_lr=0.1, **common), 3, clients_per_round=4, engine=Local())  # type: ignore[arg-type]
    assert torch.equal(plain.model.x, measured.model.x)  # type: ignore[arg-type]
