"""The interface of weighting rules."""

from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.torchjd import TorchJD, refuse_what_needs_more


class Weights(Protocol):
    """A rule that turns the Gram matrix of the objectives' gradients into the objectives' weights."""

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        """New weights [M] from the previous ones [M] and G [M, M] (symmetric, G_jk = <∇F_j, ∇F_k>)."""


@runtime_checkable
class RememberingWeights(Weights, Protocol):
    """A rule with state that lasts from round to round: the state must be in `memory`, which checkpoints include."""

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        """New weights as above; reads the rule's state from `memory` and stores new tensors there."""


Rule = Weights | nn.Module
"""The rules that methods accept: those of this package, the user's, and torchjd's objects."""

WEIGHTS: dict[str, type[Weights]] = {}
"""All rules by name; filled in by the package."""


def check_rule(rule: Rule) -> None:
    """Raise unless the object is a rule that needs only a Gram matrix; called before work starts."""
    if isinstance(rule, nn.Module):
        refuse_what_needs_more(rule)
    elif not callable(rule):
        raise TypeError(f"weights must be a rule (w, G) -> w, but got {rule!r}")


def weigh(rule: Rule, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
    """The weights [M] computed by a rule of any kind; an error if they are not M finite numbers."""
    if isinstance(rule, nn.Module):
        rule = TorchJD(rule)
    found = rule.remember(w, G, memory) if isinstance(rule, RememberingWeights) else rule(w, G)
    try:
        weights: Vector = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != w.shape or not np.isfinite(weights).all():
        raise ValueError(f"weights must be {len(w)} finite numbers, but the rule {rule!r:.200} returned {found!r:.200}")
    return weights
