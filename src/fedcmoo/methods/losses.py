"""The contribution of methods that need the objectives' losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes


@dataclass(frozen=True)
class Losses(Contribution):
    """The client's losses, float64 [M]: means over all of its data, or over its first batch of the round."""

    batch_size: int | None
    whole_data: bool

    def compute(self, client: Client, message: Message) -> Arrays:
        return {"losses": client.losses() if self.whole_data else client.batch_losses(self.batch_size)}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"losses": Field((sizes.M,), torch.float64, clippable=False)}
