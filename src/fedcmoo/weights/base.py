"""The interface of weighting rules."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from fedcmoo.types import Matrix, Vector


class Weights(Protocol):
    """A rule that turns the Gram matrix of the objectives' gradients into the objectives' weights."""

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        """New weights [M] from the previous ones [M] and G [M, M] (symmetric, G_jk = <∇F_j, ∇F_k>)."""


@runtime_checkable
class RememberingWeights(Weights, Protocol):
    """A rule that keeps something from round to round: it must live in `memory`, which checkpoints hold."""

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        """New weights as above; reads what it knows from `memory` and puts new tensors there."""


Rule = Weights | nn.Module
"""What methods take: a rule of this package or of the user, or torchjd's own objects."""

WEIGHTS: dict[str, type[Weights]] = {}
"""All rules by name; the package fills it in."""


def check_rule(rule: Rule) -> None:
    """Raise unless it is a rule that a Gram matrix is enough for, so that it shows before work starts."""
    if isinstance(rule, nn.Module):
        from fedcmoo.weights.torchjd import refuse_what_needs_more

        refuse_what_needs_more(rule)
    elif not callable(rule):
        raise TypeError(f"weights must be a rule (w, G) -> w, but got {rule!r}")


def weigh(rule: Rule, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
    """The weights [M] that a rule of any kind gives; an error if they are not M finite numbers."""
    if isinstance(rule, nn.Module):
        from fedcmoo.weights.torchjd import TorchJD

        rule = TorchJD(rule)
    found = rule.remember(w, G, memory) if isinstance(rule, RememberingWeights) else rule(w, G)
    weights: Vector = np.asarray(found, dtype=np.float64)
    if weights.shape != w.shape or not np.isfinite(weights).all():
        raise ValueError(f"weights must be {len(w)} finite numbers, but the rule {rule!r:.200} returned {found!r:.200}")
    return weights
