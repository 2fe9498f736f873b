"""Bounds on what one client can change: clipping to an L2 norm, fixed or following a quantile of the norms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


def l2_norm(arrays: Iterable[Tensor]) -> float:
    """The norm of all entries of all arrays, in float64."""
    return math.hypot(*(torch.linalg.vector_norm(array, dtype=torch.float64).item() for array in arrays))


def clip(arrays: Mapping[str, Tensor], bound: float) -> dict[str, Tensor]:
    """The arrays, scaled down together where their joint norm exceeds `bound`: min(1, C / ||v||) v.

    The norm of the result never exceeds the bound, rounding included.

    >>> clip({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, bound=10.0)
    {'a': tensor([3.]), 'b': tensor([4.])}
    >>> l2_norm(clip({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, bound=1.0).values()) <= 1
    True
    """
    norm = l2_norm(arrays.values())
    if not math.isfinite(norm):
        raise ValueError("an array to be clipped must be finite, but has NaN or infinite entries")
    if norm <= bound:
        return dict(arrays)
    return {name: _scaled(array, bound / norm) for name, array in arrays.items()}


def _scaled(array: Tensor, factor: float) -> Tensor:
    """The array times a factor that float32 may be too small for, less twice what rounding the products can add."""
    return (array.double() * (factor * (1 - torch.finfo(array.dtype).eps))).to(array.dtype)


@dataclass(frozen=True)
class QuantileClipping:
    """A clipping bound that follows a quantile of the clients' norms.

    Each client adds b_i = 1/2 if its norm is within the bound C, and -1/2 if not. From the noised sum over the cohort
    the server estimates the share s of norms within the bound, and sets C <- C exp(-η (s - γ)). The sum of the b_i is a
    release of its own, with `sensitivity` 1/2.

    Args:
        quantile: γ, the share of clients that are not clipped.
        lr: η.

    References:
        Andrew, Thakkar, McMahan and Ramaswamy. Differentially private learning with adaptive clipping. NeurIPS 2021.
    """

    quantile: float = 0.5
    lr: float = 0.2

    sensitivity = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, but got {self.quantile}")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be positive and finite, but got {self.lr}")

    def vote(self, norm: float, bound: float) -> float:
        """b_i, of a client whose unclipped contribution has this norm."""
        return self.sensitivity if norm <= bound else -self.sensitivity

    def next_bound(self, bound: float, votes: float, n: int) -> float:
        """The bound of the next round, from the noised sum of the votes of a cohort of n."""
        within = votes / n + 0.5
        return bound * math.exp(-self.lr * (within - self.quantile))
