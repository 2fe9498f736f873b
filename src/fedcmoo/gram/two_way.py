"""ApproxGramJacobian, two-way (Algorithm 5, appendix B): a download of the compressed sum repairs part of the error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, RandomizedSVD
from fedcmoo.gram.base import Estimate, budget_bytes, check_budget, columns, inner, shared_jacobian, take_square
from fedcmoo.messages import Field, Message, check
from fedcmoo.randomness import generator
from fedcmoo.rounds import Ask, Server, Sizes, Sums, Task
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class TwoWay:
    """One-way's upload, then a download of the compressed sum, with which clients repair part of the error.

    As appendix B has it, with ĥ_i = Q(h_i), the residual R_i = h_i - ĥ_i and n clients,

        n² G = Σ_i h_i^T h_i + Σ_i Σ_{j≠i} ĥ_i^T ĥ_j + Σ_i Σ_{j≠i} (R_i^T ĥ_j + ĥ_j^T R_i) + Σ_i Σ_{j≠i} R_i^T R_j
               own             compressed              mixed                                 dropped

    `own` comes from the clients exactly, [M, M] each. `compressed` is (Σ ĥ)^T (Σ ĥ) - Σ ĥ_i^T ĥ_i, for which the server
    has all it needs. For `mixed` the server sends Q(Σ ĥ_j), and client i replies with R_i^T (Q(Σ ĥ_j) - ĥ_i), [M, M].
    The paper writes `mixed` as 2 Σ R_i^T (…); here it is that matrix plus its transpose, which G's symmetry asks for.

    Args:
        compressor: Q, of clients and server.
        budget: what a client uploads, and downloads, in multiples of d numbers; the M x M matrices come on top.
    """

    sums_only: ClassVar[bool] = False
    asks_cohort: ClassVar[bool] = True

    compressor: Compressor = field(default=RandomizedSVD(), metadata={"registry": COMPRESSORS})
    budget: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.budget)

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        settings = (self.compressor, self.budget, batch_size)
        return {"jacobian": UploadCompressedAndGram(*settings), "correction": UploadCorrection(*settings)}

    def estimate(self, server: Server) -> Estimate:
        sums = yield Ask("jacobian")
        random = generator(server.seed, server.round, "gram", "compress")
        budget = budget_bytes(self.budget, server.sizes.d_shared)
        message = self.compressor.encode(sums["h"], budget, random)
        corrections = yield Ask("correction", message)
        G: Matrix = (self.combine(sums, corrections, message, budget) / sums.count**2).numpy()
        return G

    def combine(self, sums: Sums, corrections: Sums, message: Message, budget: int) -> Tensor:
        """n² G, float64 [M, M]."""
        own = sums["own"].double()
        compressed = inner(sums["h"], sums["h"]) - sums["compressed_own"]
        mixed = corrections["mixed"].double() * (sums.count / corrections.count)  # should a client have failed since
        return own + compressed + mixed + mixed.T


@dataclass(frozen=True)
class UploadCompressedAndGram(Task):
    """ĥ_i = Q(h_i), and h_i^T h_i exactly."""

    compressor: Compressor
    budget: float
    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        h = shared_jacobian(client, self.batch_size)
        payload = self.compressor.encode(h, budget_bytes(self.budget, h.shape[1]), client.random("compress"))
        return Message(**payload, own=inner(h, h).float())

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        own, payload = take_square(reply, "own", sizes.M, sender)
        shape = (sizes.M, sizes.d_shared)
        h = self.compressor.decode(payload, shape, budget_bytes(self.budget, sizes.d_shared), sender)
        return {"h": h, "own": own, "compressed_own": inner(h, h)}


@dataclass(frozen=True)
class UploadCorrection(Task):
    """R_i^T (Q(Σ ĥ_j) - ĥ_i), given Q(Σ ĥ_j). The client has ĥ_i by compressing h_i again, with the same draws."""

    compressor: Compressor
    budget: float
    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        h, compressed, compressed_sum = self.jacobians(client, message)
        return Message(mixed=difference_product(h, compressed_sum, minus=compressed).float())

    def jacobians(self, client: Client, message: Message) -> tuple[Tensor, Tensor, Tensor]:
        """h_i, ĥ_i and Q(Σ ĥ_j), all [M, d]."""
        h = shared_jacobian(client, self.batch_size)
        M, d = h.shape
        budget = budget_bytes(self.budget, d)
        payload = self.compressor.encode(h, budget, client.random("compress")).cpu()
        compressed = self.compressor.decode(payload, (M, d), budget, str(client))
        compressed_sum = self.compressor.decode(message, (M, d), budget, "the server")
        return h, compressed.to(h), compressed_sum.to(h)

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        check(reply, {"mixed": Field((sizes.M, sizes.M))}, sender)
        return reply


def difference_product(a: Tensor, b: Tensor, minus: Tensor) -> Tensor:
    """(a - minus) (b - minus)^T in float64 [M, M], of rows [M, d], without a difference of their size."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for block in columns(a.shape[1]):
        total += (a[:, block] - minus[:, block]) @ (b[:, block] - minus[:, block]).T
    return total
