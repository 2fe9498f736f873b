"""Preferences: the ratios that a user wants between the losses, and how far the losses are from them."""

from collections.abc import Sequence

import numpy as np

from fedcmoo.types import Vector

SMALLEST = 1e-12
"""The lower bound of a share û_k, which keeps its logarithm finite when a loss reaches zero."""

LARGEST = 1e6
"""The largest number allowed in a preference; its inverse is the smallest."""


def check_preference(preference: Sequence[float] | Vector, M: int | None = None) -> Vector:
    """The preference r as a vector [M]; an error if it is not a valid preference.

    r is not normalized, as in the authors' runs. Its ratios define the target r_1 F_1 = … = r_M F_M; its size only
    limits how fast the loss of an objective that is ahead may grow meanwhile (see `FindWeightsPref`).

    Args:
        preference: one positive number per objective; twice the number asks for half the loss.
        M: the number of objectives; None if it is not known yet.

    >>> check_preference((2, 1, 3), M=3).tolist()
    [2.0, 1.0, 3.0]
    """
    try:
        r: Vector = np.asarray(preference, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"a preference must be a sequence of numbers, but got {preference!r}") from None
    if r.ndim != 1 or len(r) == 0 or (M is not None and len(r) != M):
        expected = "one number per objective" if M is None else f"one number per objective ({M})"
        raise ValueError(f"a preference must be {expected}, but got {preference!r}")
    if not ((r >= 1 / LARGEST) & (r <= LARGEST)).all():
        raise ValueError(f"every number of a preference must be from 1e-6 to 1e6, but got {preference!r}")
    return r


def scaled_shares(r: Vector, losses: Vector) -> Vector:
    """û = (r ⊙ F) / Σ_k r_k F_k: the objectives' shares [M] in the scaled losses; all 1/M if the preference is met.

    Losses below zero count as zero, and if all are zero the shares are equal.
    """
    scaled = np.maximum(r * losses, 0)
    total = scaled.sum()
    if total == 0:
        return np.full(len(r), 1 / len(r))
    shares: Vector = np.maximum(scaled / total, SMALLEST)
    shares /= shares.sum()
    return shares


def non_uniformity(r: Vector, losses: Vector) -> float:
    """μ_r = KL(û || 1/M) = Σ_k û_k log(M û_k): zero if the preference is met, at most log M.

    >>> r, losses = np.array([1.0, 2.0]), np.array([0.6, 0.3])
    >>> non_uniformity(r, losses)
    0.0
    """
    shares = scaled_shares(r, losses)
    return max(float(shares @ np.log(len(r) * shares)), 0.0)
