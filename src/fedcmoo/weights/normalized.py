"""Normalized: any rule applied to gradients of length one, so that the scale of a loss has no effect on training."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedcmoo.settings import Named, registered, resolve_names
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.base import WEIGHTS, Rule, check_rule, weigh
from fedcmoo.weights.gramian import unit_lengths
from fedcmoo.weights.min_norm import MinNorm


@dataclass(frozen=True)
class Normalized:
    """Divides every objective's gradient by its length before another rule weighs them.

    With D = diag(1 / ||∇F_k||), the rule sees D G D, whose diagonal is 1, and gives weights v of the unit gradients;
    the objectives' weights are D v divided by its sum. So a loss that is multiplied by s gets a weight divided by s,
    and training is unchanged. Min-norm weights alone scale with 1/s², which leaves an objective with large gradients
    almost untrained.

    Args:
        weights: the rule for the unit gradients.

    >>> Normalized()(np.full(2, 0.5), np.diag([1.0, 16.0])).round(4).tolist()
    [0.8, 0.2]
    >>> MinNorm()(np.full(2, 0.5), np.diag([1.0, 16.0])).round(4).tolist()
    [0.9412, 0.0588]
    """

    weights: Named[Rule] = registered(MinNorm(), WEIGHTS)

    def __post_init__(self) -> None:
        resolve_names(self)
        check_rule(self.weights)

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        if not (np.diag(G) > 0).any():
            return w
        length = unit_lengths(G)
        before = w * length  # the previous weights, as weights of the unit gradients
        v = weigh(self.weights, before / before.sum(), G / np.outer(length, length), memory)
        new: Vector = (v / length) / np.abs(v / length).sum()
        return new
