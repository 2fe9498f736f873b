"""ApproxGramJacobian-T (appendix F.2): an unbiased estimate from two independent cohorts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, Quantizer, check_budget
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import Estimate, Gram, inner
from fedcmoo.gram.one_way import CompressedJacobian
from fedcmoo.messages import Message
from fedcmoo.randomness import derive
from fedcmoo.rounds import Ask, Server
from fedcmoo.settings import Named, registered, resolve_names
from fedcmoo.types import Matrix
from fedcmoo.validation import at_least_one

COHORTS = ("jacobian-1", "jacobian-2")
"""The names of the contributions of the two cohorts."""


@dataclass(frozen=True)
class Unbiased(Gram):
    """G = Y_1^T Y_2, where Y_j is the mean of Q(h_i) over the j-th of two cohorts drawn for this estimate.

    The product of a mean with itself, as in the other estimators, is too large on average by the variance of the mean,
    from the choice of clients and batches; the product of two independent means is not. Q must be unbiased. The
    symmetric part of the product is returned, which has the same mean and no more variance.

    Args:
        compressor: Q: a quantizer, a random mask or the identity.
        budget: a client's upload, in multiples of d numbers. Two bits per entry, the quantizer's minimum, need slightly
            more than M/16.
        clients: n', the size of each cohort; None for the size of the training cohort.
    """

    asks_cohort: ClassVar[bool] = False  # it asks two other cohorts

    compressor: Named[Compressor] = registered(Quantizer(), COMPRESSORS)
    budget: float = 1.0
    clients: int | None = None

    def __post_init__(self) -> None:
        resolve_names(self)
        check_budget(self.budget)
        at_least_one(clients=self.clients)
        if not self.compressor.unbiased:
            raise ValueError(f"the compressor must be unbiased, but {type(self.compressor).__name__} is not")

    def contributions(self, batch_size: int | None) -> Mapping[str, Contribution]:
        return {name: IndependentJacobian(batch_size, self.compressor, self.budget, name) for name in COHORTS}

    def estimate(self, server: Server, *others: str) -> Estimate:
        n = self.clients or len(server.cohort)
        if n > server.N:
            raise ValueError(f"clients must be at most the number of clients ({server.N}), but got {n}")
        first, second = COHORTS
        sums = yield Ask(dict.fromkeys((first, *others), Message()), clients=server.sample(n, first))
        again = yield Ask({second: Message()}, clients=server.sample(n, second))
        product = inner(sums.objective_mean(f"{first}/h"), again.objective_mean(f"{second}/h"))
        G: Matrix = ((product + product.T) / 2).numpy()
        return G, sums


@dataclass(frozen=True)
class IndependentJacobian(CompressedJacobian):
    """Q(h_i) on a batch independent of all others in the round, since a client may be in both cohorts and train."""

    purpose: str

    def compute(self, client: Client, message: Message) -> Arrays:
        return super().compute(self.other(client), message)

    def encode(self, arrays: Arrays, client: Client) -> Message:
        return super().encode(arrays, self.other(client))

    def other(self, client: Client) -> Client:
        """The same client with other random numbers."""
        return replace(client, seed=derive(client.seed, self.purpose), first=None)
