"""Small problems whose answers are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedcmoo import Objective, Problem, accuracy

CLIENTS = 6
"""The clients of `personal`."""


class Point(nn.Module):
    """A model that is just a point x; its output is x for every sample."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(d, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.x.expand(len(inputs), -1)


class SquaredDistance:
    """½ ||x - c_k||², averaged over the samples' own points c (targets [B, M, d])."""

    def __init__(self, k: int, scale: float = 1.0) -> None:
        self.k, self.scale = k, scale

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        return self.scale * 0.5 * (x - targets[:, self.k]).square().sum(dim=1).mean()


def quadratics(M: int = 2, d: int = 3, clients: int = 6, samples: int = 4, seed: int = 0) -> Problem:
    """F_k(x) = ½ ||x - c_k||² + const with c_k the mean of all clients' points: the Pareto set is the hull of the
    c_k."""
    g = torch.Generator().manual_seed(seed)
    data = [
        (torch.zeros(samples, 1), torch.randn(samples, M, d, generator=g, dtype=torch.float64)) for _ in range(clients)
    ]
    return Problem(Point(d), [Objective(f"f{k}", SquaredDistance(k)) for k in range(M)], data, test=data[0])


def missing_labels(clients: int = 9) -> Problem:
    """Two regressions; client 0 has no label of the second."""
    labels = torch.zeros(4, 3, dtype=torch.float64)
    data = [(torch.zeros(4, 1), {"f0": labels, "f1": labels if i else labels / 0}) for i in range(clients)]
    return Problem(Point(3), [Objective("f0", mse_loss), Objective("f1", mse_loss)], data)


def centres(problem: Problem) -> Tensor:
    """The minimisers c_k of the objectives of `quadratics`, [M, d]."""
    return torch.stack([data[1].mean(dim=0) for data in problem.clients]).mean(dim=0)


class TwoHeads(nn.Module):
    """A shared layer with BatchNorm and dropout, and a head for each of two classifications."""

    shared = ("encoder",)

    def __init__(self, seed: int = 0, dropout: float = 0.3) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
            self.heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(2))

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        z = self.encoder(inputs)
        return tuple(head(z) for head in self.heads)


class Noise:
    """An augmentation that adds noise, all of it from the generator."""

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs + 0.01 * torch.randn(inputs.shape, generator=generator)


def classification(clients: int = 8, samples: int = 40, seed: int = 0, dropout: float = 0.3) -> Problem:
    """Two 3-class problems on six features, with everything random that training can have."""
    g = torch.Generator().manual_seed(seed)
    teacher = torch.randn(2, 6, 3, generator=g)

    def draw(n: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = torch.randn(n, 6, generator=g)
        return x, ((x @ teacher[0]).argmax(1), (x @ teacher[1]).argmax(1))

    objectives = [Objective("first", cross_entropy, [accuracy]), Objective("second", cross_entropy, [accuracy])]
    return Problem(
        TwoHeads(seed, dropout),
        objectives,
        [draw(samples) for _ in range(clients)],
        test=draw(300),
        transform=Noise(),
        name="classification",
    )


def personal(**settings: Any) -> Problem:
    """Two classifications whose classes have other names at every client: only private heads can tell them all."""
    g = torch.Generator().manual_seed(0)
    teacher = torch.randn(2, 6, 3, generator=g)

    def draw(i: int, n: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = torch.randn(n, 6, generator=g)
        return x, (((x @ teacher[0]).argmax(1) + i) % 3, ((x @ teacher[1]).argmax(1) + i) % 3)

    objectives = [Objective(name, cross_entropy, [accuracy]) for name in ("first", "second")]
    clients = [draw(i, 40) for i in range(CLIENTS)]
    return Problem(
        TwoHeads(dropout=0.0), objectives, clients, client_test=[draw(i, 50) for i in range(CLIENTS)], **settings
    )
