"""ApproxGramJacobian, one-way (Algorithm 3): the Gram matrix of the mean of compressed Jacobians."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, RandomizedSVD
from fedcmoo.gram.base import Estimate, budget_bytes, check_budget, gram_matrix, shared_jacobian
from fedcmoo.messages import Message
from fedcmoo.rounds import Ask, Server, Sizes, Task


@dataclass(frozen=True)
class OneWay:
    """G = (1/n Σ Q(h_i))^T (1/n Σ Q(h_i)), with a compressor Q.

    Args:
        compressor: Q.
        budget: what a client uploads, in multiples of d numbers.
    """

    sums_only: ClassVar[bool] = False  # each payload is decoded before it is added
    asks_cohort: ClassVar[bool] = True

    compressor: Compressor = field(default=RandomizedSVD(), metadata={"registry": COMPRESSORS})
    budget: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.budget)

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        return {"jacobian": UploadCompressed(self.compressor, self.budget, batch_size)}

    def estimate(self, server: Server) -> Estimate:
        sums = yield Ask("jacobian")
        return gram_matrix(sums.mean("h"))


@dataclass(frozen=True)
class UploadCompressed(Task):
    """Q(h_i), within the budget."""

    compressor: Compressor
    budget: float
    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        h = shared_jacobian(client, self.batch_size)
        return self.compressor.encode(h, budget_bytes(self.budget, h.shape[1]), client.random("compress"))

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        shape = (sizes.M, sizes.d_shared)
        return {"h": self.compressor.decode(reply, shape, budget_bytes(self.budget, sizes.d_shared), sender)}
