"""A synthetic problem with any number of clients, objectives and parameters; data are generated on demand."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcmoo.data.base import TensorData
from fedcmoo.models.images import SharedEncoder
from fedcmoo.problem import Objective, Problem
from fedcmoo.randomness import generator, seeded

FEATURES, CLASSES, SAMPLES = 64, 10, 256


class Perceptron(SharedEncoder):
    """Two hidden layers shared by all objectives, and a linear layer for each. Input [B, 64], M outputs [B, 10]."""

    def __init__(self, objectives: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.decoders = nn.ModuleList(nn.Linear(width, CLASSES) for _ in range(objectives))


@dataclass(frozen=True)
class LazyClients(Sequence[TensorData]):
    """Clients whose data are generated when they are accessed; client i always has the same data."""

    clients: int
    objectives: int

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, i: int) -> TensorData:  # type: ignore[override]  # slices are not needed
        if not 0 <= i < self.clients:
            raise IndexError(f"there are {self.clients} clients, but client {i} was asked for")
        draws = generator(i, "synthetic")
        targets = torch.randint(CLASSES, (self.objectives, SAMPLES), generator=draws)
        return TensorData(torch.randn(SAMPLES, FEATURES, generator=draws), tuple(targets))


def synthetic(clients: int = 100, objectives: int = 2, width: int = 128) -> Problem:
    """A problem of random classifications of random points.

    >>> problem = synthetic(clients=10_000, objectives=3)
    >>> problem.N, problem.M, len(problem.client(9_999))
    (10000, 3, 256)
    """
    with seeded(torch.device("cpu"), 0, "synthetic"):
        model = Perceptron(objectives, width)
    return Problem(
        model,
        [Objective(f"objective {k + 1}", cross_entropy) for k in range(objectives)],
        clients=LazyClients(clients, objectives),
        name="synthetic",
    )
