"""The simplex projection, FindWeights and the min-norm solver against optimality conditions and a QP solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import FindWeights, min_norm, project_on_simplex


def on_simplex(w: Vector, tol: float = 1e-9) -> bool:
    return bool((w >= -tol).all() and abs(w.sum() - 1) < tol)


def gram(M: int, rank: int, seed: int, kind: str) -> Matrix:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(M, rank)) * rng.uniform(0.1, 10, size=(M, 1))
    if kind == "duplicate":
        A[-1] = A[0]
    if kind == "zero":
        A[M // 2] = 0
    if kind == "opposite":
        A[-1] = -A[0]
    G: Matrix = A @ A.T
    return G


@pytest.mark.parametrize("seed", range(20))
def test_projection_satisfies_its_optimality_condition(seed: int) -> None:
    """w is the projection of v exactly if <v - w, u - w> <= 0 for every vertex u of the simplex."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=rng.integers(1, 30)) * 10.0 ** rng.integers(-3, 3)
    w = project_on_simplex(v)
    assert on_simplex(w)
    assert ((v - w) - (v - w) @ w).max() <= 1e-9 * max(1, np.abs(v).max())


@pytest.mark.parametrize("kind", ["plain", "duplicate", "zero", "opposite"])
@pytest.mark.parametrize("M", [2, 3, 5, 11, 40])
@pytest.mark.parametrize("rank", [2, 100])
def test_min_norm_satisfies_kkt(M: int, rank: int, kind: str) -> None:
    """Gw >= (w^T G w) 1, with equality where w > 0."""
    for seed in range(10):
        G = gram(M, rank, seed, kind)
        w = min_norm(G)
        assert on_simplex(w)
        slack = (G @ w - w @ G @ w) / np.abs(np.diag(G)).max()
        assert slack.min() > -1e-9
        assert np.abs(slack[w > 1e-7]).max() < 1e-7


@pytest.mark.parametrize("M", [2, 3, 7, 20, 40])
def test_min_norm_agrees_with_a_qp_solver(M: int) -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="the extra dev is not installed")
    for seed, kind in enumerate(["plain", "duplicate", "zero", "opposite"]):
        G = gram(M, 60, seed, kind)
        G /= np.diag(G).max()
        w = cvxpy.Variable(M)
        problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.quad_form(w, cvxpy.psd_wrap(G))), [w >= 0, cvxpy.sum(w) == 1])
        problem.solve(solver="CLARABEL")
        ours = min_norm(G)
        assert ours @ G @ ours == pytest.approx(problem.value, abs=1e-7)


def test_min_norm_of_two_agrees_with_a_line_search() -> None:
    for seed in range(20):
        G = gram(2, 5, seed, "plain")

        def value(t: float, G: Matrix = G) -> float:
            w = np.array([t, 1 - t])
            return float(w @ G @ w)

        w = min_norm(G)
        assert w @ G @ w == pytest.approx(
            minimize_scalar(value, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).fun, rel=1e-6
        )


def test_min_norm_of_extremes() -> None:
    assert min_norm(np.zeros((3, 3))).tolist() == [1 / 3] * 3
    assert min_norm(np.array([[4.0]])).tolist() == [1.0]
    indefinite = np.array([[1.0, 0.0], [0.0, -1e-3]])  # as the noise of a compressed estimate can be
    assert on_simplex(min_norm(indefinite))
    for scale in (1e-12, 1e12):
        G = gram(5, 9, 1, "plain")
        assert np.allclose(min_norm(G), min_norm(scale * G), atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_find_weights_converges_to_min_norm(seed: int) -> None:
    G = gram(4, 6, seed, "plain")
    best = min_norm(G) @ G @ min_norm(G)
    gaps = []
    for K in (10, 1000, 100_000):
        w = FindWeights(beta=0.01, iterations=K)(np.full(4, 0.25), G)
        assert on_simplex(w)
        gaps.append((w @ G @ w - best) / np.diag(G).max())
    assert gaps[0] >= gaps[1] >= gaps[2] >= -1e-12
    assert gaps[2] < 1e-4


def test_find_weights_is_the_projected_gradient_of_eq_5() -> None:
    """Against a loop whose projection a QP solver computes."""
    cvxpy = pytest.importorskip("cvxpy", reason="the extra dev is not installed")
    G = gram(3, 5, 0, "plain")
    G /= np.diag(G).max()
    w = np.full(3, 1 / 3)
    for _ in range(4):
        u = cvxpy.Variable(3)
        cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(u - (w - 0.3 * G @ w))), [u >= 0, cvxpy.sum(u) == 1]).solve()
        w = u.value
    ours = FindWeights(beta=0.3, iterations=4, scale_free=False)(np.full(3, 1 / 3), G)
    assert np.allclose(ours, w, atol=1e-6)


def test_find_weights_ignores_scale_and_order() -> None:
    G = 100 * gram(4, 6, 2, "plain")
    w0 = np.full(4, 0.25)
    order = np.array([2, 0, 3, 1])
    w = FindWeights()(w0, G)
    assert np.allclose(FindWeights()(w0, 1e4 * G), w, atol=1e-4)
    assert np.allclose(FindWeights()(w0, G[np.ix_(order, order)]), w[order], atol=1e-12)


@pytest.mark.parametrize(("settings", "rule"), [({"beta": -1}, "beta"), ({"iterations": 0}, "iterations")])
def test_find_weights_refuses(settings: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FindWeights(**settings)  # type: ignore[arg-type]
