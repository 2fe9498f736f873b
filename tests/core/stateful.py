"""Methods that test what engines keep: clients' memories from round to round, and gradients from ask to ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Message
from fedcmoo.methods import FedAvg, FedCMOO
from fedcmoo.methods.base import LocalTraining
from fedcmoo.rounds import Ask, Round, Server


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


class ChangesTheModel(FedCMOO):
    """Moves x between its two asks, so that gradients of the first ask are not those of the model it trains."""

    def round(self, server: Server) -> Round:
        yield from self.approx_gram_jacobian(server)
        server.x.mul_(0.5)
        sums = (yield Ask({"train": Message(w=torch.tensor([0.5, 0.5], dtype=torch.float64))})).part("train")
        self.descend(server, sums.mean("update"), sums)
