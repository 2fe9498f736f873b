"""The linear program of FedCMOO-Pref against an independent solver, and its behaviour in degenerate cases."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import Fallback, FindWeightsPref, PreferenceWeights, check_preference, min_norm, non_uniformity

CASES = int(os.environ.get("FEDCMOO_LP_CASES", "180"))
"""How many programs to compare; thousands take some minutes."""

KINDS = ("plain", "singular", "indefinite", "zero row", "duplicate", "opposite", "scales", "tied losses", "zero loss")
TOLERANCE = 1e-6


def case(seed: int) -> tuple[Vector, Vector, Matrix, str]:
    """Preference, losses and Gram matrix of one of many kinds; M from 1 to 40."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    M = int(rng.choice([1, 2, 2, 3, 5, 11, 40]))
    A = rng.normal(size=(M, max(1, M // 2) if kind == "singular" else M + 2))
    losses = rng.uniform(0.05, 3, size=M)
    if kind == "zero row":
        A[M // 2] = 0
    if kind == "duplicate":
        A[-1] = A[0]
    if kind == "opposite":
        A[-1] = -A[0]
    if kind == "scales":
        A *= 10.0 ** rng.uniform(-4, 4, size=(M, 1))
    if kind == "tied losses":
        losses[:] = 1.0
    if kind == "zero loss":
        losses[0] = 0.0
    G = A @ A.T
    if kind == "indefinite":  # the noise of a coarse sketch, symmetric
        noise = rng.normal(size=(M, M)) * rng.uniform(0, 1) * np.sqrt(np.outer(np.diag(G), np.diag(G)))
        G = G + (noise + noise.T) / 2
    return check_preference(rng.uniform(0.2, 5, size=M)), losses, G * 10.0 ** rng.uniform(-6, 6), kind


def stated(rule: FindWeightsPref, r: Vector, losses: Vector, G: Matrix) -> tuple[Vector, list[tuple[int, float]], int]:
    """The program of appendix C once more, entry by entry: goal, constraints (k, bound), how many are of the first
    set."""
    M = len(r)
    scaled = [max(r[k] * losses[k], 0.0) for k in range(M)]
    shares = [max(s / sum(scaled), 1e-12) if any(scaled) else 1 / M for s in scaled]
    mu = sum(u * np.log(M * u) for u in shares)
    a = np.array([r[k] * (np.log(M * shares[k]) - mu) for k in range(M)])
    along = [float(a @ G[:, k]) for k in range(M)]
    balancing = mu > rule.threshold
    worst = [k for k in range(M) if scaled[k] >= rule.near_worst * max(scaled)]
    if not balancing and rule.descent == "relaxed":
        return G @ np.ones(M), [(k, 0.0) for k in range(M)], M
    J = [k for k in range(M) if along[k] > 0]
    others = [k for k in range(M) if k not in J and k not in worst]
    constraints = [(k, 0.0) for k in worst] + [(k, along[k] if J else 0.0) for k in others]
    return G @ (a if balancing else np.ones(M)), constraints, len(worst)


def solve(cvxpy: Any, goal: Vector, G: Matrix, constraints: list[tuple[int, float]]) -> tuple[float, float]:
    """By another solver: how far the constraints can be met (each in units of its largest coefficient; negative: not
    at all), and the best value of the goal over the largest entry of the goal (nan where they cannot be met)."""
    sizes = [max(np.abs(G[:, k]).max(), 1e-300) for k, _ in constraints]
    A = np.array([G[:, k] / size for (k, _), size in zip(constraints, sizes, strict=True)])
    b = np.array([bound / size for (_, bound), size in zip(constraints, sizes, strict=True)])
    w, margin = cvxpy.Variable(len(goal), nonneg=True), cvxpy.Variable()
    simplex = cvxpy.sum(w) == 1
    cvxpy.Problem(cvxpy.Maximize(margin), [margin <= 1, simplex, A @ w - b >= margin]).solve(solver="CLARABEL")
    if margin.value < -TOLERANCE:
        return float(margin.value), np.nan
    program = cvxpy.Problem(cvxpy.Maximize(goal / np.abs(goal).max() @ w), [simplex, A @ w >= b])
    program.solve(solver="CLARABEL")
    return float(margin.value), np.nan if program.value is None else float(program.value)


def assert_on_simplex(w: Vector) -> None:
    assert np.isfinite(w).all()
    assert w.min() >= 0
    assert abs(w.sum() - 1) < 1e-9


def compare_with_solver(cvxpy: Any, rule: FindWeightsPref, r: Vector, losses: Vector, G: Matrix) -> PreferenceWeights:
    """Assert that the rule's weights are as good as the solver's, or rightly a fallback."""
    result = rule(r, losses, G)
    assert_on_simplex(result.w)
    if not G.any():
        assert result.fallback == Fallback.EQUAL
        return result
    G = G / np.abs(G).max()
    goal, constraints, first = stated(rule, r, losses, G)
    if np.abs(goal).max() < 1e-12:
        assert result.fallback == Fallback.MIN_NORM
        return result
    for fallback, some in ((Fallback.NONE, constraints), (Fallback.FIRST_SET_ONLY, constraints[:first])):
        margin, best = solve(cvxpy, goal, G, some)
        if result.fallback == fallback:
            assert margin > -TOLERANCE
            violation = [(b - G[:, k] @ result.w) / max(np.abs(G[:, k]).max(), 1e-300) for k, b in some]
            assert max(violation) < TOLERANCE
            assert goal @ result.w / np.abs(goal).max() > best - TOLERANCE
            return result
        assert margin < TOLERANCE  # the rule gave this program up
    assert result.fallback == Fallback.MIN_NORM
    assert np.allclose(result.w, min_norm(G), atol=1e-9)
    return result


@pytest.mark.parametrize(
    "rule",
    [
        FindWeightsPref(),
        FindWeightsPref(near_worst=0.9, descent="relaxed", threshold=0.2),
        FindWeightsPref(threshold=10.0),
    ],
    ids=["text", "authors", "descent"],
)
def test_program_agrees_with_another_solver(rule: FindWeightsPref) -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="the dev group is not installed")
    seen = {compare_with_solver(cvxpy, rule, *case(seed)[:3]).fallback for seed in range(CASES // 3)}
    assert Fallback.NONE in seen
    assert len(seen) > 1  # some of the indefinite ones have no solution


def test_a_true_gram_matrix_never_needs_a_fallback() -> None:
    """The min-norm weights satisfy every constraint, so the program has a solution."""
    for seed in range(0, 9 * 30, 9):
        r, losses, G, kind = case(seed)
        assert kind == "plain"
        result = FindWeightsPref()(r, losses, G)
        assert result.fallback == Fallback.NONE
        assert_on_simplex(result.w)


@pytest.mark.parametrize("M", [1, 2, 40])
def test_what_says_nothing_gives_equal_weights(M: int) -> None:
    r, losses, rule = np.ones(M), np.linspace(1, 2, M), FindWeightsPref()
    nothing = [
        rule(r, losses, np.zeros((M, M))),
        rule(r, losses, np.full((M, M), np.nan)),
        rule(r, np.full(M, np.inf), np.eye(M)),
    ]
    for result in nothing:
        assert result.fallback == Fallback.EQUAL
        assert result.w.tolist() == [1 / M] * M
        assert np.isfinite(result.kl)


def test_both_fallbacks_happen_where_they_should() -> None:
    """No w on the simplex has G w >= 0 where G is negative; with a bound on one objective only, there may be one."""
    rule = FindWeightsPref(threshold=10.0, descent="relaxed")
    assert rule(np.ones(2), np.ones(2), np.array([[-1.0, -0.5], [-0.5, -1.0]])).fallback == Fallback.MIN_NORM
    rule = FindWeightsPref()
    G = np.array([[1.0, -3.0], [-3.0, -1.0]])  # the first objective is the worst; the second's bound cannot be met
    result = rule(np.ones(2), np.array([2.0, 1.9]), G)
    assert result.fallback in (Fallback.FIRST_SET_ONLY, Fallback.NONE)
    assert_on_simplex(result.w)


def test_order_and_scale_do_not_matter() -> None:
    for seed in range(0, 90, 9):
        r, losses, G, _ = case(seed)
        w = FindWeightsPref()(r, losses, G).w
        assert np.allclose(FindWeightsPref()(r, losses, 1e8 * G).w, w, atol=1e-6)
        assert np.allclose(FindWeightsPref()(r, 100 * losses, G).w, w, atol=1e-6)
        order = np.random.default_rng(seed).permutation(len(r))
        shuffled = FindWeightsPref()(r[order], losses[order], G[np.ix_(order, order)]).w
        assert np.allclose(shuffled, w[order], atol=1e-6)


def test_even_share_is_a_minimum_weight() -> None:
    G = np.array([[1.0, -0.5], [-0.5, 2.0]])
    w = FindWeightsPref(even_share=0.2)(np.ones(2), np.array([2.0, 1.0]), G).w
    assert np.allclose(w, [0.9, 0.1])  # 0.8 * (1, 0) + 0.2 / 2: the smallest is the paper's 1/(5M)


def test_non_uniformity_is_the_kl_divergence() -> None:
    assert non_uniformity(np.array([1.0, 5.0]), np.array([5.0, 1.0])) == pytest.approx(0, abs=1e-15)
    assert non_uniformity(np.ones(2), np.array([3.0, 1.0])) == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    assert non_uniformity(np.ones(3), np.array([1.0, 0.0, 0.0])) == pytest.approx(np.log(3), abs=1e-9)
    assert non_uniformity(np.ones(3), np.zeros(3)) == 0


@pytest.mark.parametrize(
    ("preference", "message"),
    [
        ([1.0, 2.0, 3.0], r"one number per objective \(2\), but got \[1.0, 2.0, 3.0\]"),
        ([], "one number per objective"),
        ([[1.0, 2.0]], "one number per objective"),
        ([1.0, 0.0], "from 1e-6 to 1e6"),
        ([1.0, -2.0], "from 1e-6 to 1e6"),
        ([1.0, float("nan")], "from 1e-6 to 1e6"),
        ([float("inf")] * 2, "from 1e-6 to 1e6"),
        (["a", "b"], "sequence of numbers"),
        ([1.0, 1e-300], "from 1e-6 to 1e6"),
    ],
)
def test_wrong_preferences_are_refused(preference: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_preference(preference, M=2)


def test_a_larger_preference_lets_the_objectives_that_are_ahead_lose_more() -> None:
    # Objective 2 is ahead and conflicts with objective 1: its constraint w^T g_2 >= a^T g_2 has r's scale on the right.
    G, losses = np.array([[1.0, -0.8], [-0.8, 1.0]]), np.array([1.2, 0.9])
    small, large = (FindWeightsPref()(np.array(r), losses, G) for r in ([0.1, 0.1], [10.0, 10.0]))
    assert small.kl == pytest.approx(large.kl)
    assert (G @ large.w)[1] < (G @ small.w)[1] < 0


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"threshold": -1.0}, "threshold"),
        ({"near_worst": 0.0}, "near_worst"),
        ({"even_share": 1.1}, "even_share"),
        ({"descent": "steep"}, "descent"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FindWeightsPref(**settings)
