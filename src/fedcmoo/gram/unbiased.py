"""ApproxGramJacobian-T (appendix F.2): unbiased, from two independent cohorts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, Quantizer
from fedcmoo.gram.base import Estimate, budget_bytes, check_budget, inner, shared_jacobian
from fedcmoo.messages import Message
from fedcmoo.randomness import derive
from fedcmoo.rounds import Ask, Server, Sizes, Task
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class Unbiased:
    """G = Y_1^T Y_2, where Y_j is the mean of Q(h_i) over the j-th of two cohorts, drawn anew for this purpose.

    The product of a mean with itself, as in the other estimators, is too large on average by the variance of the mean,
    from the choice of clients and batches; the product of two independent means is not. Q must be unbiased. The
    symmetric part of the product is returned, which has the same mean and no more variance.

    Args:
        compressor: Q: a quantizer, a random mask or the identity.
        budget: what a client uploads, in multiples of d numbers. Two bits an entry, the least that the quantizer takes,
            need M/16 and a little.
    """

    sums_only: ClassVar[bool] = False
    asks_cohort: ClassVar[bool] = False  # it asks two other ones

    compressor: Compressor = field(default=Quantizer(), metadata={"registry": COMPRESSORS})
    budget: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.budget)
        if not self.compressor.unbiased:
            raise ValueError(f"the compressor must be unbiased, but {type(self.compressor).__name__} is not")

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        return {
            phase: UploadIndependent(self.compressor, self.budget, batch_size, phase)
            for phase in ("jacobian-1", "jacobian-2")
        }

    def estimate(self, server: Server) -> Estimate:
        n = len(server.cohort)
        first = yield Ask("jacobian-1", clients=server.sample(n, "jacobian-1"))
        second = yield Ask("jacobian-2", clients=server.sample(n, "jacobian-2"))
        product = inner(first.mean("h"), second.mean("h"))
        G: Matrix = ((product + product.T) / 2).numpy()
        return G


@dataclass(frozen=True)
class UploadIndependent(Task):
    """Q(h_i) on a batch that is independent of any other in the round: a client may be in both cohorts, and train."""

    compressor: Compressor
    budget: float
    batch_size: int | None
    purpose: str

    def answer(self, client: Client, message: Message) -> Message:
        other_seed = derive(client.seed, self.purpose)
        other = Client(client.problem, client.model, client.state, other_seed, client.round, client.i)
        h = shared_jacobian(other, self.batch_size)
        return self.compressor.encode(h, budget_bytes(self.budget, h.shape[1]), other.random("compress"))

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        shape = (sizes.M, sizes.d_shared)
        return {"h": self.compressor.decode(reply, shape, budget_bytes(self.budget, sizes.d_shared), sender)}
