"""Scalarized: FedAvg with weights computed from the losses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Field, Message
from fedcmoo.methods.base import WeightedLoss
from fedcmoo.rounds import Ask, Round, Server, Sizes
from fedcmoo.settings import Named, registered
from fedcmoo.types import Vector
from fedcmoo.validation import check_literals
from fedcmoo.weights.scalarization import FAMO, SCALARIZATIONS, LossRule

LAST_LOSSES = "last-losses"
"""The name in the server's memory of the previous round's losses, [M]."""


@dataclass(frozen=True, kw_only=True)
class Scalarized(WeightedLoss):
    """Local steps on the weighted loss with weights computed from the previous round's losses, in one trip per round.

    A round costs as much as one of FedAvg plus M numbers per client. The first round has equal weights.

    Args:
        weights: the rule that turns losses into weights.
        losses: "all" averages a client's losses over all of its data, "batch" over its first batch of the round only,
            which costs clients almost nothing, but is noisier.
    """

    title: ClassVar[str] = "local steps on weights that follow the losses: M numbers more than FedAvg"

    weights: Named[LossRule] = registered(FAMO(), SCALARIZATIONS)
    losses: Literal["all", "batch"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.weights, LossRule):
            raise TypeError(f"weights must be a rule for losses such as FAMO(), but got {self.weights!r}")
        check_literals(self)

    def initial_weights(self, M: int) -> Vector:
        self.weights(super().initial_weights(M), {})  # find a preference of the wrong length before work starts
        return super().initial_weights(M)

    def contributions(self) -> Mapping[str, Contribution]:
        return {
            "losses": Losses(self.batch_size, whole_data=self.losses == "all"),
            "train": self.training(reuse_jacobian=False),
        }

    def round(self, server: Server) -> Round:
        losses = server.memory.pop(LAST_LOSSES, None)
        if losses is not None and losses.isfinite().all():  # NaN where nobody in the cohort owned an objective
            server.w = self.weights(losses.numpy(), server.memory)
        sums = yield Ask({"losses": Message(), "train": self.training_message(server)})
        server.memory[LAST_LOSSES] = sums.objective_mean("losses/losses")
        self.finish(server, sums.part("train"))


@dataclass(frozen=True)
class Losses(Contribution):
    """The client's losses, float64 [M]: means over all of its data, or over its first batch of the round."""

    batch_size: int | None
    whole_data: bool

    def compute(self, client: Client, message: Message) -> Arrays:
        return {"losses": client.losses() if self.whole_data else client.batch_losses(self.batch_size)}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"losses": Field((sizes.M,), torch.float64, clippable=False)}
