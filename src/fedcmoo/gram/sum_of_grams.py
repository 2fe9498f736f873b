"""The sum of the clients' own Gram matrices: almost no upload, but products of different clients are missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import OnePhase, check_own, inner
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class SumOfGrams(OnePhase):
    """G ≈ 1/n² Σ_i h_i^T h_i: only the terms with j = i of appendix B's expansion, at an upload of M² numbers.

    The paper says that it is scaled "properly", but not how. Rules that do not depend on G's scale, such as
    FindWeights, are not affected; with this scale the terms that are present are exact.
    """

    def contribution(self, batch_size: int | None) -> Contribution:
        return OwnGram(batch_size)

    def combine(self, sums: Sums) -> Matrix:
        G: Matrix = sums.pair_mean(sums["own"].double()).numpy()
        return G


@dataclass(frozen=True)
class OwnGram(Contribution):
    """h_i^T h_i, [M, M]."""

    gradients: ClassVar[bool] = True

    batch_size: int | None

    def compute(self, client: Client, message: Message) -> Arrays:
        h = client.shared_jacobian(self.batch_size)
        return {"own": inner(h, h).float()}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"own": Field((sizes.M, sizes.M), degree=2)}

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        arrays = super().decode(payload, sizes, sender)
        check_own(arrays["own"], sender)
        return arrays
