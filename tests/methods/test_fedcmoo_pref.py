"""FedCMOO-Pref on convex problems whose Pareto set is known, and what a round of it sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcmoo import FedCMOO, Objective, Problem, fit
from fedcmoo.gram import GRAMS, Exact
from fedcmoo.history import Record
from fedcmoo.methods import FedCMOOPref, Method
from fedcmoo.metrics import non_dominated
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import FindWeightsPref, check_preference, non_uniformity
from tests.core.problems import Point, classification, quadratics

PRECISE = FindWeightsPref(threshold=1e-5, descent="relaxed")
"""The paper's threshold lets scaled losses differ by a third; this one by 1 %."""

LINE = np.array([[1.0, 0.0, 0.5], [-1.0, 0.0, 0.0]])
TRIANGLE = np.array([[1.0, 0.0, 0.0], [-0.5, np.sqrt(0.75), 0.0], [-0.5, -np.sqrt(0.75), 0.0]])


def descend(
    centres: Matrix, preference: Sequence[float], rule: FindWeightsPref, lrs: Sequence[float]
) -> tuple[Vector, list[float]]:
    """Exact gradient steps on F_k(x) = ½ ||x - c_k||², whose Pareto set is the hull of the c_k: the final losses, and
    the non-uniformity before each step."""
    r, x, kls = check_preference(preference), np.array([0.2, 0.4, 0.6]), []
    for lr in lrs:
        J = x - centres  # the gradients as rows
        result = rule(r, 0.5 * (J**2).sum(axis=1), J @ J.T)
        kls.append(result.kl)
        x = x - lr * result.w @ J
    losses: Vector = 0.5 * ((x - centres) ** 2).sum(axis=1)
    return losses, kls


def pareto_losses(centres: Matrix, n: int = 4000) -> Matrix:
    """Losses of many points of the Pareto set."""
    x = np.random.default_rng(0).dirichlet(np.ones(len(centres)), size=n) @ centres
    losses: Matrix = 0.5 * ((x[:, None] - centres) ** 2).sum(axis=2)
    return losses


@pytest.mark.parametrize(
    ("centres", "preferences"),
    [
        (LINE, [(1, 1), (1, 2), (1, 3), (1, 5), (5, 1)]),
        (TRIANGLE, [(1, 1, 1), (1, 1, 2), (1, 2, 1.5), (5, 1, 1)]),
    ],
    ids=["two objectives", "three objectives"],
)
def test_losses_stand_as_asked_and_no_point_is_dominated(centres: Matrix, preferences: list[tuple[float, ...]]) -> None:
    lrs, reached, front = np.geomspace(0.1, 0.005, 220).tolist(), [], pareto_losses(centres)
    for preference in preferences:
        losses, _ = descend(centres, preference, PRECISE, lrs)
        scaled = np.asarray(preference) * losses
        assert scaled.max() / scaled.min() < 1.02, preference
        assert not (front < 0.99 * losses).all(axis=1).any(), preference
        reached.append(losses)
    assert non_dominated(reached).all()


@pytest.mark.parametrize("preference", [(1, 1), (1, 5), (1, 1, 1), (1, 1, 4)])
@pytest.mark.parametrize("rule", [FindWeightsPref(), FindWeightsPref(descent="relaxed")], ids=["text", "relaxed"])
def test_non_uniformity_does_not_grow_above_the_threshold(preference: tuple[float, ...], rule: FindWeightsPref) -> None:
    centres = LINE if len(preference) == 2 else TRIANGLE
    _, kls = descend(centres, preference, rule, [0.02] * 80)
    above = np.array(kls[:-1]) > rule.threshold
    assert above.any()
    assert (np.diff(kls)[above]).max() < 1e-6
    assert min(kls) <= rule.threshold


class Valley:
    """½ Σ_j a_j (x_j - c_j)², with the curvature a as each sample's target [B, d]."""

    def __init__(self, centre: Tensor) -> None:
        self.centre = centre

    def __call__(self, x: Tensor, curvature: Tensor) -> Tensor:
        return 0.5 * (curvature * (x - self.centre).square()).sum(dim=1).mean()


def valleys(centres: Matrix, clients: int = 4) -> Problem:
    """Clients with different curvatures but the same minimisers: the Pareto set is the hull of the centres."""
    g = torch.Generator().manual_seed(0)
    data = [(torch.zeros(2, 1), torch.rand(2, 3, generator=g, dtype=torch.float64) + 0.5) for _ in range(clients)]
    objectives = [Objective(f"f{k}", Valley(torch.from_numpy(c))) for k, c in enumerate(centres)]
    return Problem(Point(3), objectives, data, test=data[0])


def test_a_federated_run_with_exact_gradients_reaches_the_preference() -> None:
    method = FedCMOOPref(
        preference=(1, 3), gram=Exact(), weights=PRECISE, client_lr=0.04, local_steps=1, batch_size=None
    )
    problem = valleys(LINE)
    result = fit(problem, method, rounds=120, clients_per_round=4, evaluate_every=120)
    x = next(result.model.parameters()).detach()
    curvature = torch.stack([data[1].mean(dim=0) for data in problem.clients]).mean(dim=0)
    losses = (0.5 * curvature * (x - torch.from_numpy(LINE)).square()).sum(dim=1)
    assert 3 * losses[1] / losses[0] == pytest.approx(1, abs=0.02)
    kls = [record.notes["kl"] for record in result.history]
    assert kls[-1] < kls[0]
    assert {record.notes["fallback"] for record in result.history} == {0.0}


def test_losses_are_the_clients_averages_and_cost_m_numbers() -> None:
    """ "kl" of the first round, from the losses of the cohort computed here; and the bytes of the first phase."""
    problem = quadratics(M=3, clients=5)
    method = FedCMOOPref(preference=(1, 2, 3), gram=Exact(), batch_size=None, local_steps=1)
    first = fit(problem, method, rounds=1, clients_per_round=3, seed=2).history[0]
    losses = np.zeros(3)
    for i in first.cohort:
        losses += 0.5 * problem.clients[i][1].square().sum(dim=2).mean(dim=0).numpy() / 3  # x starts at zero
    assert first.notes["kl"] == pytest.approx(non_uniformity(check_preference((1, 2, 3)), losses), rel=1e-9)
    assert set(first.up) == {"jacobian", "train"}  # no trip of their own
    assert 0 < first.up["jacobian"] - 3 * (3 * 3 * 8 + 3 * 8) < 3 * 50  # a client: M x d numbers, M losses, a header


@pytest.mark.parametrize("gram", GRAMS)
def test_any_gram_estimator_brings_the_losses_along(gram: str) -> None:
    """With everyone in the cohort and whole batches, "kl" is the same whoever estimates G, and no trip is added."""

    def first(method: Method) -> Record:
        return fit(quadratics(d=64), replace(method, batch_size=None, local_steps=1), rounds=1).history[0]

    alone = first(FedCMOO(gram=GRAMS[gram]()))
    ours = first(FedCMOOPref(gram=GRAMS[gram](), preference=(1, 2)))
    exact = first(FedCMOOPref(gram=Exact(), preference=(1, 2)))
    assert ours.notes["kl"] == pytest.approx(exact.notes["kl"])
    assert set(ours.up) == set(alone.up)
    more = sum(ours.up.values()) - sum(alone.up.values())
    assert 0 < more - len(ours.cohort) * 2 * 8 < len(ours.cohort) * 30  # and a name in the header


def test_losses_of_the_first_batch_are_an_option() -> None:
    """With the whole data as the batch, and nothing random, both options see the same losses."""
    runs = [
        fit(quadratics(), FedCMOOPref(losses=losses, batch_size=None, local_steps=1), rounds=2).history
        for losses in ("all", "batch")
    ]
    assert [r.notes["kl"] for r in runs[0]] == pytest.approx([r.notes["kl"] for r in runs[1]])
    small = fit(classification(), FedCMOOPref(losses="batch", batch_size=8, local_steps=2), rounds=2)
    assert all(np.isfinite(record.notes["kl"]) for record in small.history)


def test_looking_at_the_losses_does_not_change_training() -> None:
    """With equal weights whatever the losses are, dropout and BatchNorm must train the same after either look."""
    rule = FindWeightsPref(even_share=1.0)
    models = [
        fit(classification(), FedCMOOPref(losses=losses, weights=rule, batch_size=8, local_steps=3), rounds=2).model
        for losses in ("all", "batch")
    ]
    for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_stationarity_and_angles_are_logged() -> None:
    for record in fit(quadratics(), FedCMOOPref(batch_size=None), rounds=2).history:
        assert record.gram is not None
        G = np.array(record.gram)
        cosine = G[0, 1] / np.sqrt(G[0, 0] * G[1, 1])
        assert record.notes["max_angle"] == pytest.approx(np.degrees(np.arccos(cosine)))
        best = min(w @ G @ w for w in ([t, 1 - t] for t in np.linspace(0, 1, 2001)))
        assert record.notes["stationarity"] == pytest.approx(best, abs=1e-5 * G.max())


@pytest.mark.parametrize("preference", [(1, 0), (1, -1), (1, float("nan")), (float("inf"), float("inf"))])
def test_wrong_preferences_are_refused_at_once(preference: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="every number of a preference must be from 1e-6 to 1e6"):
        FedCMOOPref(preference=preference)


def test_a_preference_of_the_wrong_length_is_refused_before_work_starts() -> None:
    with pytest.raises(ValueError, match=r"one number per objective \(2\), but got \(1, 2, 3\)"):
        fit(quadratics(M=2), FedCMOOPref(preference=(1, 2, 3)), rounds=1)
    with pytest.raises(ValueError, match="losses must be 'all' or 'batch'"):
        FedCMOOPref(losses="some")  # type: ignore[arg-type]


def test_weights_with_inertia_move_by_a_share_of_a_corner_at_most() -> None:
    def weights(inertia: float) -> Matrix:
        method = FedCMOOPref(gram=Exact(), preference=(1, 3), local_steps=1, inertia=inertia, batch_size=None)
        result = fit(quadratics(M=2, d=5, clients=3, samples=2), method, 8, clients_per_round=3)
        return np.array([[0.5, 0.5]] + [list(record.weights.values()) for record in result.history])

    jumping, moving = weights(0.0), weights(0.75)
    np.testing.assert_allclose(moving.sum(axis=1), 1)
    # The first program is the same: a corner, of which a quarter is taken.
    np.testing.assert_allclose(moving[1], 0.75 * moving[0] + 0.25 * jumping[1])
    assert np.abs(np.diff(moving, axis=0)).max() <= 0.25


@pytest.mark.parametrize("inertia", [-0.1, 1.0, float("nan")])
def test_wrong_inertia_is_refused(inertia: float) -> None:
    with pytest.raises(ValueError, match="inertia must be at least 0 and below 1"):
        FedCMOOPref(inertia=inertia)
