"""The small problem of the campaign, its methods, and clients that fail at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.messages import Field
from fedcmoo.problem import Objective, Problem
from fedcmoo.randomness import generator, seeded

FEATURES, CLASSES, SAMPLES = 8, 3, 24


class SmallNetwork(nn.Module):
    """A shared layer with BatchNorm and dropout, and a head for each of two classifications. [B, 8] -> 2 x [B, 3]."""

    shared = ("encoder",)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.heads = nn.ModuleList(nn.Linear(16, CLASSES) for _ in range(2))

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(inputs)
        return tuple(head(features) for head in self.heads)


def small_problem(seed: int = 0, clients: int = 12) -> Problem:
    """Random classifications of random points, with everything that a checkpoint has to hold."""
    draws = generator(seed, "reliability")

    def data() -> tuple[Tensor, tuple[Tensor, ...]]:
        x = torch.randn(SAMPLES, FEATURES, generator=draws)
        return x, tuple(torch.randint(CLASSES, (SAMPLES,), generator=draws) for _ in range(2))

    with seeded(torch.device("cpu"), seed, "reliability"):
        model = SmallNetwork()
    objectives = [Objective("first", cross_entropy), Objective("second", cross_entropy)]
    return Problem(model, objectives, [data() for _ in range(clients)], test=data(), name="reliability")


FAULT = "fault"
"""The purpose of the draws of faults."""


class InjectedError(RuntimeError):
    """What a faulty client raises."""


@dataclass(frozen=True)
class FaultyClients(Stage):
    """Clients that fail at random: some raise, some send NaN, some send arrays of other shapes.

    Args:
        raising, nan, garbage: the shares of clients and rounds with each fault.
    """

    raising: float = 0.30
    nan: float = 0.05
    garbage: float = 0.06

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        draws = client.random(FAULT)
        match self.strikes(draws):
            case "raise":
                raise InjectedError(f"client {client.i}\x1b[31m\n" + "x" * 2_000)
            case "nan":
                return {n: array * float("nan") if array.is_floating_point() else array for n, array in arrays.items()}
            case "garbage":
                return {name: torch.randn(7, 5, generator=draws) for name in arrays}
        return arrays

    def strikes(self, draws: torch.Generator) -> str:
        """The fault that is drawn for a client; "" for none."""
        draw = torch.rand(1, generator=draws).item()
        for fault, share in (("raise", self.raising), ("nan", self.nan), ("garbage", self.garbage)):
            draw -= share
            if draw < 0:
                return fault
        return ""
