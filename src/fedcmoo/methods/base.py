"""What all methods have in common: the settings of local training, and the round as a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.messages import Field, Message, check
from fedcmoo.optimizers import OPTIMIZERS, SGD, Optimizer
from fedcmoo.rounds import Round, Server, Sizes, Task
from fedcmoo.types import Vector
from fedcmoo.validation import at_least_one, positive


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A federated algorithm: `round` is what the server does, `tasks` what clients do when it asks.

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
    def tasks(self) -> Mapping[str, Task]:
        """The client's side, by phase."""

    @abstractmethod
    def round(self, server: Server) -> Round:
        """The server's side of one round."""

    def initial_weights(self, M: int) -> Vector:
        """w^(0): equal weights, unless a method knows better."""
        return torch.full((M,), 1 / M, dtype=torch.float64).numpy()

    def training(self, reuse_jacobian: bool) -> LocalTraining:
        """The task of training on the weighted loss, with this method's settings."""
        return LocalTraining(
            self.client_lr, self.local_steps, self.batch_size, self.optimizer, reuse_jacobian=reuse_jacobian
        )


@dataclass(frozen=True)
class LocalTraining(Task):
    """K local steps on Σ_k w_k f_{i,k}; the reply is x - x_i.

    The paper's client sends Δ_i = (x - x_i) / (K η_c), and its server multiplies by K η_c again; both factors are
    left out here.
    """

    lr: float
    steps: int
    batch_size: int | None
    optimizer: Optimizer
    reuse_jacobian: bool

    def answer(self, client: Client, message: Message) -> Message:
        check(message, {"w": Field((client.problem.M,), torch.float64)}, "the server")
        w = message["w"].tolist()
        update = client.train(w, self.steps, self.lr, self.optimizer, self.batch_size, self.reuse_jacobian)
        client.first = None  # phase one's gradients have served
        return Message(update=update, **non_empty(buffers=client.model.buffers(), counters=client.model.counters()))

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        check(reply, {"update": Field((sizes.d,), sizes.dtype), **buffer_fields(sizes)}, sender)
        return reply


def weights_message(w: Vector) -> Message:
    """The objectives' weights, as they are sent to clients."""
    return Message(w=torch.from_numpy(w))


def buffer_fields(sizes: Sizes) -> dict[str, Field]:
    """What a reply holds of the model's buffers: nothing where the model has none."""
    fields = {
        "buffers": Field((sizes.buffers,), sizes.dtype),
        "counters": Field((sizes.counters,), torch.int64),
    }
    return {name: fields[name] for name in fields if fields[name].shape != (0,)}


def non_empty(**arrays: Tensor) -> dict[str, Tensor]:
    """The arrays that have entries."""
    return {name: array for name, array in arrays.items() if array.numel()}
