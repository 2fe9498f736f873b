"""The sum of the clients' own Gram matrices: next to no upload, and blind to how clients agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.gram.base import Estimate, inner, shared_jacobian
from fedcmoo.messages import Field, Message, check
from fedcmoo.rounds import Ask, Server, Sizes, Task
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class SumOfGrams:
    """G ≈ 1/n² Σ_i h_i^T h_i: of appendix B's expansion the terms with j = i alone, at an upload of M² numbers.

    The paper scales it "properly" and does not say how. Rules that do not depend on G's scale, such as FindWeights,
    do not mind; this is the scale at which the terms that are there are right.
    """

    sums_only: ClassVar[bool] = True
    asks_cohort: ClassVar[bool] = True

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        return {"jacobian": UploadOwnGram(batch_size)}

    def estimate(self, server: Server) -> Estimate:
        sums = yield Ask("jacobian")
        G: Matrix = (sums["own"].double() / sums.count**2).numpy()
        return G


@dataclass(frozen=True)
class UploadOwnGram(Task):
    """h_i^T h_i, [M, M]."""

    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        h = shared_jacobian(client, self.batch_size)
        return Message(own=inner(h, h).float())

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        check(reply, {"own": Field((sizes.M, sizes.M))}, sender)
        return reply
