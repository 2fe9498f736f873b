"""FindWeightsPref (algorithms 4 and 7): the weights of FedCMOO-Pref, from a linear program."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from fedcmoo.types import Matrix, Vector
from fedcmoo.validation import check_literals, not_negative
from fedcmoo.weights.min_norm import min_norm
from fedcmoo.weights.preference import non_uniformity, scaled_shares

ZERO = 1e-12
"""A goal whose entries are all smaller than this counts as zero, with G scaled so that its largest entry is 1."""


class Fallback(IntEnum):
    """The source of the weights.

    The min-norm weights of a true Gram matrix satisfy both sets of constraints, so a program has no solution only if
    the noise of a compressed estimate made G indefinite.
    """

    NONE = 0
    """The full program."""
    FIRST_SET_ONLY = 1
    """The program without its second set of constraints, since the full program had no solution."""
    MIN_NORM = 2
    """The min-norm weights, since there was no solution with the first set alone either, or the goal was zero and all
    solutions were equally good."""
    EQUAL = 3
    """Equal weights, since G or the losses are not usable (zero, NaN or infinite)."""


class PreferenceWeights(NamedTuple):
    """The weights w on the simplex [M], the non-uniformity μ_r of the losses, and the source of the weights."""

    w: Vector
    kl: float
    fallback: Fallback


@dataclass(frozen=True)
class FindWeightsPref:
    """Weights that bring the losses to the requested ratios, and then decrease all losses (appendix C).

    With shares û = (r ⊙ F) / Σ_k r_k F_k, non-uniformity μ = KL(û || 1/M), a_k = r_k (log(M û_k) - μ) and g_k the
    columns of G, the weights solve

        max over the simplex of  w^T G a   while μ > threshold,  w^T G 1   otherwise
        such that  w^T g_k >= 0                      for k in J*         (these losses must not grow)
                   w^T g_k >= a^T g_k [J not empty]  for k in J̄ \\ J*    (these may, but not faster than along a)

    where J = {k : a^T g_k > 0}, J̄ the other objectives, and J* = argmax_k r_k F_k. The defaults are the paper's text;
    the authors' runs use the other values named below.

    Args:
        threshold: the μ below which all losses are decreased; above it, they are brought to the requested ratios.
            With two objectives, 0.01 lets the scaled losses differ by a third, 0.0001 by 3 %.
        near_worst: J* holds every k with r_k F_k >= near_worst * max_j r_j F_j. 1 is the paper's argmax; the authors'
            runs use 0.9, which protects more objectives from noise in the losses, but does not balance within 10 %.
        even_share: w <- (1 - even_share) w + even_share / M, so that no weight is below even_share / M. 0.2 gives
            the paper's minimum 1/(5M), which it uses where no preference must be met exactly. (The paper describes a
            projection; the authors' runs use this mixture, and so do we: it keeps the order of the weights.)
        descent: the constraints once μ <= threshold. "constrained" keeps the constraints above, as in the paper.
            "relaxed", as in the authors' runs, asks only that no loss grows: G w >= 0.

    Deviations: G is divided by its largest entry and each constraint by its largest coefficient, which changes no
    solution but suits the solver's absolute tolerances. For programs without a solution, see `Fallback`.

    >>> G = np.array([[1.0, -0.5], [-0.5, 2.0]])
    >>> result = FindWeightsPref()(np.ones(2), np.array([2.0, 1.0]), G)
    >>> result.w.tolist(), round(result.kl, 3), result.fallback.name
    ([1.0, 0.0], 0.057, 'NONE')

    References:
        Mahapatra and Rajan. Multi-task learning with user preferences: gradient descent with controlled ascent in
        Pareto optimization. ICML 2020.
    """

    threshold: float = 0.01
    near_worst: float = 1.0
    even_share: float = 0.0
    descent: Literal["constrained", "relaxed"] = "constrained"

    def __post_init__(self) -> None:
        not_negative(threshold=self.threshold)
        check_literals(self)
        if not 0 < self.near_worst <= 1:
            raise ValueError(f"near_worst must be above 0 and at most 1, but got {self.near_worst}")
        if not 0 <= self.even_share <= 1:
            raise ValueError(f"even_share must be from 0 to 1, but got {self.even_share}")

    def __call__(self, r: Vector, losses: Vector, G: Matrix) -> PreferenceWeights:
        """The new weights, from the preference r [M], the losses F(x) [M] and the Gram matrix G [M, M]."""
        M = len(r)
        scale = np.abs(G).max(initial=0)
        known = bool(np.isfinite(losses).all())
        mu = non_uniformity(r, losses) if known else float(np.log(M))
        if scale == 0 or not np.isfinite(scale) or not known:
            return PreferenceWeights(np.full(M, 1 / M), mu, Fallback.EQUAL)
        w, fallback = self._solve(r, losses, G / scale, mu)
        return PreferenceWeights((1 - self.even_share) * w + self.even_share / M, mu, fallback)

    def _solve(self, r: Vector, losses: Vector, G: Matrix, mu: float) -> tuple[Vector, Fallback]:
        a = r * (np.log(len(r) * scaled_shares(r, losses)) - mu)
        aligned = G @ a  # a^T g_k: [M]
        scaled = np.maximum(r * losses, 0)
        worst = scaled >= self.near_worst * scaled.max()  # J*
        rest = (aligned <= 0) & ~worst  # J̄ \ J*
        bound = aligned if (aligned > 0).any() else np.zeros_like(aligned)
        if mu > self.threshold:
            goal = aligned
        else:
            goal = G.sum(axis=1)
            if self.descent == "relaxed":
                worst, bound = np.ones_like(worst), np.zeros_like(bound)
        if np.abs(goal).max() < ZERO:
            return min_norm(G), Fallback.MIN_NORM
        w = linear_program(goal, G[worst | rest], np.where(worst, 0, bound)[worst | rest])
        if w is not None:
            return w, Fallback.NONE
        w = linear_program(goal, G[worst], np.zeros(worst.sum()))
        if w is not None:
            return w, Fallback.FIRST_SET_ONLY
        return min_norm(G), Fallback.MIN_NORM


def linear_program(goal: Vector, A: Matrix, b: Vector) -> Vector | None:
    """argmax of goal^T w over the simplex such that A w >= b, by HiGHS; None if there is no solution.

    Args:
        goal: [M], not all zero.
        A: one constraint a row, [n, M].
        b: [n].
    """
    from scipy.optimize import linprog  # imported here since it is slow to import and clients never need it

    size = np.abs(A).max(axis=1, initial=0)
    A, b = A[size > 0] / size[size > 0, None], b[size > 0] / size[size > 0]
    result = linprog(
        -goal / np.abs(goal).max(),
        A_ub=-A,
        b_ub=-b,
        A_eq=np.ones((1, len(goal))),
        b_eq=[1.0],
        bounds=(0, 1),
        method="highs",
    )
    if not result.success or result.x is None:
        return None
    positive = np.maximum(result.x, 0)
    w: Vector = positive / positive.sum()
    return w
