"""A smooth, non-convex federated problem with known constants, used to measure the convergence rate."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcmoo.data.partition import Partition
from fedcmoo.data.skew import Skew, measure_skew
from fedcmoo.problem import Objective, Problem
from fedcmoo.randomness import generator
from fedcmoo.validation import at_least_one

DESCENT = 500
"""Gradient descent steps to find the starting point."""


@dataclass(frozen=True, kw_only=True)
class Valleys:
    """f_{i,k}(x) = mean over client i's samples c of Σ_j φ(x_j - c_kj), with the valley φ(u) = u² / (1 + u²).

    φ is not convex. |φ''| <= 2 and |φ'| <= 3√3/8, so all assumptions of the theorem hold: every objective is L-smooth
    with L = 2, and its stochastic gradients are bounded by b = 3√3/8 √d, and with them their variance and the clients'
    differences. A sample consists of a centre for each objective. Each objective has its own point and each client its
    own offset, around which the centres are scattered. So objectives conflict, and clients differ.

    Training starts at a minimum of the objectives' mean, which is Pareto stationary for equal weights. There the
    squared norm of the weighted gradient comes from the stochastic gradients alone; from elsewhere, the initial descent
    would hide it for any affordable number of rounds.

    Args:
        clients: N.
        samples: the number of samples of each client.
        dimensions: d.
        objectives: M.
        distance: the objectives' points are drawn at random, up to this far from the origin in each coordinate.
        difference: standard deviation of the clients' offsets.
        scatter: standard deviation of the samples.
    """

    name: ClassVar[str] = "valleys"
    title: ClassVar[str] = "smooth non-convex valleys with known constants"
    L: ClassVar[float] = 2.0

    clients: int = 10
    samples: int = 16
    dimensions: int = 10
    objectives: int = 2
    distance: float = 1.5
    difference: float = 0.3
    scatter: float = 0.3

    def __post_init__(self) -> None:
        at_least_one(clients=self.clients, samples=self.samples, dimensions=self.dimensions, objectives=self.objectives)

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The clients' sizes only, which are equal; samples have no labels."""
        parts = np.arange(self.clients * self.samples).reshape(self.clients, self.samples)
        return measure_skew(Partition(list(parts), parts.size), {})

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem; the seed determines its centres."""
        random = generator(seed, self.name)
        M, d = self.objectives, self.dimensions
        points = self.distance * (2 * torch.rand(1, 1, M, d, generator=random) - 1)
        offsets = self.difference * torch.randn(self.clients, 1, M, d, generator=random)
        centres = points + offsets + self.scatter * torch.randn(self.clients, self.samples, M, d, generator=random)
        nothing = torch.zeros(self.samples)
        return Problem(
            Position(self._stationary(centres.flatten(0, 1))),
            [Objective(f"valley {k + 1}", mean) for k in range(M)],
            clients=[(own, nothing) for own in centres],
            test=(centres.flatten(0, 1), nothing.repeat(self.clients)),
            name=self.name,
        )

    def _stationary(self, centres: Tensor) -> Tensor:
        """A minimum [d] of the mean of all objectives over centres [n, M, d]: gradient descent with step 1/L."""
        x = torch.zeros(self.dimensions, dtype=torch.float64)
        for _ in range(DESCENT):
            u = x - centres.double()
            x = x - (2 * u / (1 + u.square()).square()).mean(dim=(0, 1)) / self.L
        return x.float()


class Position(nn.Module):
    """A model whose parameters are a point x [d]; maps centres [B, M, d] to the objectives' values, M times [B]."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start)

    def forward(self, centres: Tensor) -> tuple[Tensor, ...]:
        u = (self.x - centres).square()
        return (u / (1 + u)).sum(dim=2).unbind(dim=1)


def mean(output: Tensor, target: Tensor) -> Tensor:
    """The loss of a batch, given outputs that already are losses."""
    return output.mean()
