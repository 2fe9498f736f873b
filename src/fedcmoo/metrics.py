"""Measures of multi-objective results: dominance, hypervolume, preferences, Δ_M, conflicts, starved objectives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcmoo.history import Record
from fedcmoo.optional import require
from fedcmoo.types import Matrix
from fedcmoo.weights.min_norm import min_norm

ROUNDS = 10
STANDS_STILL = 0.05

NON_UNIFORMITY = "kl"
"""The note of rounds whose weights steer the losses towards a preference."""

REMEDY = (
    "Unless it has converged, use weights=AtLeastEqual() (--weights at-least-equal), which gives every objective at "
    "least the weight of FedAvg, or bring the losses to comparable scales."
)


def non_dominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Which of n points [n, M] are dominated by no other (one nowhere larger and smaller somewhere). Bools [n].

    >>> non_dominated([[1, 2], [2, 1], [2, 2]]).tolist()
    [True, True, False]
    """
    p = np.asarray(points, dtype=float)
    no_larger = (p[:, None] <= p[None]).all(axis=2)  # [i, j]: i is nowhere larger than j
    smaller = (p[:, None] < p[None]).any(axis=2)
    dominated: NDArray[np.bool_] = np.any(no_larger & smaller, axis=0)
    return ~dominated


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """The volume of the region that is dominated by some of the points [n, M] and dominates a reference point [M].
    Larger is better. Needs the extra `pareto`.

    >>> hypervolume([[1, 2], [2, 1]], reference=[3, 3])
    3.0
    """
    return float(require("moocore", extra="pareto").hypervolume(np.asarray(points, dtype=float), ref=reference))


def angle(losses: ArrayLike, preference: ArrayLike) -> float:
    """Degrees between losses F [M] and the ray 1/r on which r_1 F_1 = … = r_M F_M: 0 if the preference [M] is met.

    >>> round(angle([1.0, 1.0], [1.0, 2.0]), 2)
    18.43
    """
    F, ray = np.asarray(losses, dtype=float), 1 / np.asarray(preference, dtype=float)
    length = float(np.linalg.norm(F))
    if length == 0:
        return 0.0
    F, ray = F / length, ray / np.linalg.norm(ray)
    # The half-angle form is accurate for small angles, for which an arc cosine loses half of the digits.
    return float(np.degrees(2 * np.arctan2(np.linalg.norm(F - ray), np.linalg.norm(F + ray))))


def delta_m(values: Sequence[float], baselines: Sequence[float], higher_is_better: Sequence[bool]) -> float:
    """Δ_M = 100/M Σ_k (-1)^{ℓ_k} (S_k - B_k) / B_k in percent, with ℓ_k = 1 where a higher S_k is better.

    The cost of training all objectives together instead of each alone (appendix E.3). Smaller is better: 0 is as good
    as M separate models, negative values are better.

    Args:
        values: S, the metrics of the common model, [M].
        baselines: B, the metrics of models trained on one objective each, [M]; none of them zero.
        higher_is_better: the metrics' directions, [M].

    >>> round(delta_m([94.4, 92.6], [95.4, 93.1], [True, True]), 2)  # FedCMOO on MultiMNIST in the paper
    0.79
    """
    if any(b == 0 for b in baselines):
        raise ValueError(f"the baselines of delta_m must not be zero, but got {list(baselines)}")
    changes = [
        (b - s) / b if higher else (s - b) / b for s, b, higher in zip(values, baselines, higher_is_better, strict=True)
    ]
    return 100 * sum(changes) / len(changes)


def stationarity(G: Matrix) -> float:
    """min over the simplex of ||Σ_k w_k ∇F_k||² = w^T G w: zero if x is Pareto stationary. G is [M, M].

    >>> round(stationarity(np.eye(2)), 9)
    0.5
    """
    w = min_norm(G)
    return max(float(w @ G @ w), 0.0)


def conflict_angles(G: Matrix) -> Matrix:
    """The angles between the objectives' gradients in degrees, [M, M]; above 90 two objectives conflict.

    A zero gradient has an angle of 90 with all others.

    >>> conflict_angles(np.array([[1.0, -1.0], [-1.0, 2.0]])).round().tolist()
    [[0.0, 135.0], [135.0, 0.0]]
    """
    length = np.sqrt(np.maximum(np.diag(G), 0))
    lengths = np.outer(length, length)
    cosine = np.divide(G, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    angles: Matrix = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    np.fill_diagonal(angles, 0)
    return angles


def of_round(G: Matrix) -> dict[str, float]:
    """The values logged in every round with a Gram matrix [M, M]: "stationarity" and "max_angle", the largest conflict
    angle."""
    return {"stationarity": stationarity(G), "max_angle": float(conflict_angles(G).max())}


def low_weight(M: int) -> float:
    """The weight below which one of M objectives is hardly trained; always below 1/M.

    >>> low_weight(2), low_weight(40)
    (0.02, 0.01)
    """
    return min(0.02, 0.4 / M)


def starved(history: Sequence[Record]) -> list[str]:
    """The objectives that a weighting rule starves, given the records of all rounds.

    An objective is starved if its weight is below `low_weight(M)` in all rounds between two evaluations at least
    `ROUNDS` apart, and its loss falls by less than the share `STANDS_STILL` between them. Only weights found by a rule
    are checked. Fixed ones, as in FedAvg, and those that follow a preference are the user's choice.
    """
    found_by_rule = any(record.gram or record.weights != history[0].weights for record in history)
    if not found_by_rule or any(NON_UNIFORMITY in record.notes for record in history):
        return []
    found: dict[str, None] = {}
    evaluated = [(record.round, record.scores) for record in history if record.scores]
    for last, after in evaluated:
        first, before = next((pair for pair in reversed(evaluated) if pair[0] <= last - ROUNDS), (0, {}))
        for name in before:
            low = all(record.weights[name] < low_weight(len(record.weights)) for record in history[first:last])
            if low and after[name]["loss"] > (1 - STANDS_STILL) * before[name]["loss"]:
                found[name] = None
    return list(found)
