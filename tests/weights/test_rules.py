"""Rules that project gradients against exact solutions, and what AtLeastEqual promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import AtLeastEqual, DualProj, UPGrad
from fedcmoo.weights.base import Rule, weigh
from tests.core.test_weights import gram
from tests.weights.test_every_rule import KINDS, weights


@pytest.mark.parametrize("M", [2, 3, 11, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_projections_satisfy_their_optimality_conditions(M: int, kind: str) -> None:
    """For min over w >= u of w^T G w: Gw >= 0, with equality where w > u. Then no objective gets worse."""
    for seed in range(5):
        G = gram(M, 60, seed, kind)
        w = weights(DualProj(normalize=False), G)
        slack = (G @ w) / np.diag(G).max()
        assert slack.min() > -1e-6
        assert np.abs(slack[w > 1 / M + 1e-6]).max(initial=0) < 1e-6
        assert w @ G @ w <= G.mean() * (1 + 1e-9)  # never longer than the mean gradient
        assert (G @ weights(UPGrad(normalize=False), G) / np.diag(G).max()).min() > -1e-6


def test_projections_agree_with_a_qp_solver() -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="the extra dev is not installed")

    def solve(G: Matrix, u: Vector) -> Vector:
        v = cvxpy.Variable(len(u))
        cvxpy.Problem(cvxpy.Minimize(cvxpy.quad_form(v, cvxpy.psd_wrap(G))), [v >= u]).solve(solver="CLARABEL")
        return np.asarray(v.value)

    for seed in range(5):
        G = gram(4, 9, seed, "plain")
        G /= np.diag(G).max()
        assert np.allclose(weights(DualProj(normalize=False), G), solve(G, np.full(4, 0.25)), atol=1e-4)
        rows = [solve(G, 0.25 * row) for row in np.eye(4)]
        assert np.allclose(weights(UPGrad(normalize=False), G), np.sum(rows, axis=0), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "rule"), [("UPGradWeighting", UPGrad(normalize=False)), ("DualProjWeighting", DualProj(normalize=False))]
)
def test_projections_agree_with_torchjd(name: str, rule: Rule) -> None:
    aggregation: Any = pytest.importorskip("torchjd.aggregation", reason="the extra torchjd is not installed")
    for seed in range(5):
        G = gram(4, 9, seed, "plain")
        G /= np.diag(G).max()
        theirs = getattr(aggregation, name)()(torch.from_numpy(G)).numpy()
        assert np.allclose(weights(rule, G), theirs, rtol=0.02, atol=0.01)


def test_without_conflict_projections_are_fedavg() -> None:
    A = np.random.default_rng(0).uniform(size=(5, 9))  # all angles below 90 degrees
    for rule in (DualProj(normalize=False), UPGrad(normalize=False)):
        assert np.allclose(weights(rule, A @ A.T), 1 / 5)


@pytest.mark.parametrize("seed", range(10))
def test_at_least_equal_is_between_the_mean_and_its_root(seed: int) -> None:
    lengths = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, size=5)
    w = weights(AtLeastEqual(), gram(5, 7, seed, "plain") * np.outer(lengths, lengths))
    assert (w >= 1 / 5).all()
    assert (w <= 5**-0.5).all()


def test_at_least_equal_goes_with_one_over_the_root_of_a_scale() -> None:
    """For gradients at right angles of lengths 1, 4, 4 and 9: the first would be 3/4, but is bounded by 1/2."""
    w = weights(AtLeastEqual(), np.diag([1.0, 16.0, 16.0, 81.0]))
    assert np.allclose(w, np.array([2, 1.5, 1.5, 1]) / 4)


def test_at_least_equal_raises_what_the_average_hurts() -> None:
    """Of three gradients of length one, the last one conflicts with the sum of the other two."""
    A = np.array([[1.0, 0.2], [1.0, -0.2], [-0.8, 0.6]])
    G = A @ A.T / np.sqrt(np.outer((A * A).sum(1), (A * A).sum(1)))
    w = weights(AtLeastEqual(), G)
    assert w[2] > w[0] == pytest.approx(1 / 3)
    assert (G @ w).min() > -1e-6
    assert (G @ np.full(3, 1 / 3)).min() < -0.1


def test_at_least_equal_remembers_the_scale_of_an_objective_that_converges() -> None:
    rule, w = AtLeastEqual(), np.full(2, 0.5)
    memory: dict[str, torch.Tensor] = {}
    for _ in range(10):
        weigh(rule, w, np.eye(2), memory)
    assert weigh(rule, w, np.diag([1e-8, 1.0]), memory)[0] < 0.52
    assert weights(rule, np.diag([1e-8, 1.0]))[0] == pytest.approx(0.5**0.5)
