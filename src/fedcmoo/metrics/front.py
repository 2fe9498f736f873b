"""Measures of losses and metrics: dominance, hypervolume, the angle to a preference, and Δ_M."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcmoo.optional import require


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
