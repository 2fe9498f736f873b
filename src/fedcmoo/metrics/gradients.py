"""Measures from a round's Gram matrix: distance from Pareto stationarity, and conflict between the objectives."""

from __future__ import annotations

import numpy as np

from fedcmoo.types import Matrix
from fedcmoo.weights.min_norm import min_norm


def stationarity(G: Matrix) -> float:
    """min over the simplex of ||Σ_k w_k ∇F_k||² = w^T G w: zero if x is Pareto stationary. G is [M, M].

    >>> stationarity(np.eye(2))
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
