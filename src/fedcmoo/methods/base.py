"""The base class of methods: the settings of local training, and a round as a generator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Channel, Channels, Contribution, Stage
from fedcmoo.messages import Field, Message, check
from fedcmoo.optimizers import OPTIMIZERS, SGD, Optimizer
from fedcmoo.randomness import seeded
from fedcmoo.rounds import Round, Server, Sizes
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import Rule, weigh


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A federated algorithm: `round` is what the server does, `contributions` are what clients compute for it.

    Args:
        client_lr: η_c, the clients' learning rate.
        server_lr: η_s, the server's.
        local_steps: K, local steps a round.
        batch_size: samples in a client's batch; None for all of its data.
        optimizer: the clients' optimizer.
    """

    title: ClassVar[str]

    client_lr: float = 0.3
    server_lr: float = 1.0
    local_steps: int = 10
    batch_size: int | None = 128
    optimizer: Optimizer = field(default=SGD(), metadata={"registry": OPTIMIZERS})

    def __post_init__(self) -> None:
        positive(client_lr=self.client_lr, server_lr=self.server_lr)
        at_least_one(local_steps=self.local_steps, batch_size=self.batch_size)

    @abstractmethod
    def contributions(self) -> Mapping[str, Contribution]:
        """What clients compute, by the names under which the server asks for it."""

    def channels(self, stages: Sequence[Stage] = ()) -> Channels:
        """The channels of all contributions, with the same stages."""
        return {name: Channel(contribution, stages) for name, contribution in self.contributions().items()}

    @abstractmethod
    def round(self, server: Server) -> Round:
        """The server's side of one round."""

    def initial_weights(self, M: int) -> Vector:
        """w^(0): equal weights, unless a method knows better."""
        return torch.full((M,), 1 / M, dtype=torch.float64).numpy()

    def training(self, reuse_jacobian: bool) -> LocalTraining:
        """Local training on the weighted loss, with this method's settings."""
        return LocalTraining(
            self.client_lr, self.local_steps, self.batch_size, self.optimizer, reuse_jacobian=reuse_jacobian
        )


@dataclass(frozen=True)
class LocalTraining(Contribution):
    """K local steps on Σ_k w_k f_{i,k}, or Σ_{k in O_i} w_k (P / P_k) f_{i,k} if clients differ: the update x - x_i.

    The paper's client sends Δ_i = (x - x_i) / (K η_c), and its server multiplies by K η_c again; both factors are
    left out here.
    """

    lr: float
    steps: int
    batch_size: int | None
    optimizer: Optimizer
    reuse_jacobian: bool

    def compute(self, client: Client, message: Message) -> Arrays:
        check(message, {"w": Field((client.problem.M,), torch.float64)}, "the server")
        w = client.own_weights(message["w"].tolist())
        update = client.train(w, self.steps, self.lr, self.optimizer, self.batch_size, self.reuse_jacobian)
        return {"update": update, **non_empty(buffers=client.model.buffers(), counters=client.model.counters())}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"update": Field((sizes.d,), sizes.dtype), **buffer_fields(sizes)}


def reweigh(server: Server, rule: Rule, G: Matrix) -> None:
    """Line 6 of Algorithm 1: set the server's G and w, by the rule.

    A G that is not finite is ignored, and the previous weights stay: so they do where nobody in the cohort owns some
    objective. What a rule draws from torch's generator is
    seeded by (seed, round), and what it remembers is in the server's memory, so a resumed run has the same weights.
    """
    if not np.isfinite(G).all():  # the clients' numbers were finite, but their products overflowed
        return
    server.G = G
    with seeded(torch.device("cpu"), server.seed, server.round, "weights"):
        server.w = weigh(rule, server.w, G, server.memory)


def weighted_sum(rows: Tensor, w: Vector) -> Tensor:
    """Σ_k w_k rows_k, [d], of rows [M, d]. Objectives that nobody in the cohort owns have a row of NaN
    and are left out."""
    weights = torch.from_numpy(w).to(rows)
    unknown = rows[:, 0].isnan()
    return rows[~unknown].T @ weights[~unknown] if unknown.any() else rows.T @ weights


def weights_message(w: Vector) -> Message:
    """The objectives' weights, as they are sent to clients."""
    return Message(w=torch.from_numpy(w))


def buffer_fields(sizes: Sizes) -> dict[str, Field]:
    """The fields of the model's buffers; none where the model has no buffers."""
    fields = {
        "buffers": Field((sizes.buffers,), sizes.dtype),
        "counters": Field((sizes.counters,), torch.int64, add="newest"),
    }
    return {name: fields[name] for name in fields if fields[name].shape != (0,)}


def non_empty(**arrays: Tensor) -> dict[str, Tensor]:
    """The arrays that have entries."""
    return {name: array for name, array in arrays.items() if array.numel()}


def positive(**settings: float) -> None:
    """Raise unless every setting is a positive, finite number."""
    for name, value in settings.items():
        if not (isinstance(value, (int, float)) and value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, but got {value}")


def at_least_one(**settings: int | None) -> None:
    """Raise unless every setting is a whole number of at least 1, or None."""
    for name, value in settings.items():
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1, but got {value}")
