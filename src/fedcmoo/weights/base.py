"""What a weighting rule is."""

from __future__ import annotations

from typing import Protocol

from fedcmoo.types import Matrix, Vector


class Weights(Protocol):
    """A rule that turns the Gram matrix of the objectives' gradients into the objectives' weights."""

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        """New weights [M] from the previous ones [M] and G [M, M] (symmetric, G_jk = <∇F_j, ∇F_k>)."""
