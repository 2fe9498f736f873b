"""The exact Gram matrix: every client uploads its whole Jacobian."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.gram.base import Estimate, gram_matrix, shared_jacobian
from fedcmoo.messages import Field, Message, check
from fedcmoo.rounds import Ask, Server, Sizes, Task


@dataclass(frozen=True)
class Exact:
    """G = (1/n Σ h_i)^T (1/n Σ h_i) without compression: the reference, at an upload of M·d numbers a client."""

    sums_only: ClassVar[bool] = True
    asks_cohort: ClassVar[bool] = True

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        return {"jacobian": UploadJacobian(batch_size)}

    def estimate(self, server: Server) -> Estimate:
        sums = yield Ask("jacobian")
        return gram_matrix(sums.mean("h"))


@dataclass(frozen=True)
class UploadJacobian(Task):
    """h_i over the shared parameters, as it is."""

    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        return Message(h=shared_jacobian(client, self.batch_size))

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        check(reply, {"h": Field((sizes.M, sizes.d_shared), sizes.dtype)}, sender)
        return reply
