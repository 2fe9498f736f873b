"""What a weighting rule is, and how a round of training applies one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from fedcmoo.randomness import seeded
from fedcmoo.rounds import Server
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
    elif isinstance(rule, type) or not callable(rule):
        raise TypeError(f"weights must be a rule (w, G) -> w, but got {rule!r}; give names to RunConfig or --weights")


def weigh(rule: Rule, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
    """The weights [M] that a rule of any kind gives."""
    if isinstance(rule, nn.Module):
        from fedcmoo.weights.torchjd import TorchJD

        rule = TorchJD(rule)
    return rule.remember(w, G, memory) if isinstance(rule, RememberingWeights) else rule(w, G)


def reweigh(server: Server, rule: Rule, G: Matrix) -> None:
    """Line 6 of Algorithm 1: the server's G becomes this round's, its w what the rule makes of it.

    Where G is not finite, the previous ones stay. What a rule draws from torch's generator is seeded by (seed,
    round), and what it remembers is in the server's memory: so a resumed run has the same weights.
    """
    if not np.isfinite(G).all():  # numbers from clients were finite, but too large to be multiplied
        return
    server.G = G
    with seeded(torch.device("cpu"), server.seed, server.round, "weights"):
        server.w = weigh(rule, server.w, G, server.memory)
