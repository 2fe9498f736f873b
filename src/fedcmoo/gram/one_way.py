"""ApproxGramJacobian, one-way (Algorithm 3): the Gram matrix of the mean of compressed Jacobians."""

from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, RandomizedSVD, budget_bytes, check_budget
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import OnePhase, gram_matrix
from fedcmoo.gram.exact import Jacobian
from fedcmoo.messages import Message
from fedcmoo.rounds import Sizes
from fedcmoo.settings import Named, registered, resolve_names
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class OneWay(OnePhase):
    """G = (1/n Σ Q(h_i))^T (1/n Σ Q(h_i)), with a compressor Q.

    Args:
        compressor: Q.
        budget: a client's upload, in multiples of d numbers.
    """

    compressor: Named[Compressor] = registered(RandomizedSVD(), COMPRESSORS)
    budget: float = 1.0

    def __post_init__(self) -> None:
        resolve_names(self)
        check_budget(self.budget)

    def contribution(self, batch_size: int | None) -> Contribution:
        return CompressedJacobian(batch_size, self.compressor, self.budget)

    def combine(self, sums: Sums) -> Matrix:
        return gram_matrix(sums.objective_mean("h"), sums.objective_noise("h"))


@dataclass(frozen=True)
class CompressedJacobian(Jacobian):
    """Q(h_i), within the budget."""

    compressor: Compressor
    budget: float

    summable: ClassVar[bool] = False

    def check(self, sizes: Sizes) -> None:
        self.compressor.check_budget((sizes.M, sizes.d_shared), budget_bytes(self.budget, sizes.d_shared))

    def encode(self, arrays: Arrays, client: Client) -> Message:
        h = arrays["h"]
        return self.compressor.encode(h, budget_bytes(self.budget, h.shape[1]), client.random("compress"))

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        shape = (sizes.M, sizes.d_shared)
        return {"h": self.compressor.decode(payload, shape, budget_bytes(self.budget, sizes.d_shared), sender)}
