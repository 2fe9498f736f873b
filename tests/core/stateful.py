"""A method whose clients remember something: their last update, half of which they add to the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Message
from fedcmoo.methods import FedAvg
from fedcmoo.methods.base import LocalTraining


@dataclass(frozen=True, kw_only=True)
class HeavyBall(FedAvg):
    """FedAvg with momentum that each client keeps for itself."""

    title: ClassVar[str] = "FedAvg with momentum at every client"

    def contributions(self) -> Mapping[str, Contribution]:
        training = self.training(reuse_jacobian=False)
        return {"train": Remembering(**vars(training))}


class Remembering(LocalTraining):
    """x - x_i plus half of what this client sent the last time it was asked."""

    def compute(self, client: Client, message: Message) -> Arrays:
        arrays = dict(super().compute(client, message))
        if "last" in client.memory:
            arrays["update"] = arrays["update"] + 0.5 * client.memory["last"]
        client.new_memory = {"last": arrays["update"]}
        return arrays
