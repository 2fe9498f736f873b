"""Euclidean projection on the probability simplex."""

from __future__ import annotations

import numpy as np

from fedcmoo.types import Vector


def project_on_simplex(v: Vector) -> Vector:
    """The point of {w : w >= 0, Σ w = 1} nearest to v [M]: max(v - θ, 0), with the one θ that makes it sum to 1.

    >>> project_on_simplex(np.array([0.5, 0.7])).round(6).tolist()
    [0.4, 0.6]
    >>> project_on_simplex(np.array([2.0, 0.0, -1.0])).tolist()
    [1.0, 0.0, 0.0]

    References:
        Held, Wolfe and Crowder. Validation of subgradient optimization. Mathematical Programming, 1974.
    """
    theta = (v.sum() - 1) / len(v)
    if v.min() > theta:  # nothing is cut off: the usual case inside the loop of find_weights
        inside: Vector = v - theta
        return inside
    descending = np.sort(v)[::-1]
    thetas = (np.cumsum(descending) - 1) / np.arange(1, len(v) + 1)
    support = np.count_nonzero(descending > thetas)
    w: Vector = np.maximum(v - thetas[support - 1], 0)
    return w
