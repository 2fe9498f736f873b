"""The exact Gram matrix: every client uploads its whole Jacobian."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import OnePhase, gram_matrix
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix


@dataclass(frozen=True)
class Exact(OnePhase):
    """G = (1/n Σ h_i)^T (1/n Σ h_i) without compression: the reference, at an upload of M·d numbers per client."""

    def contribution(self, batch_size: int | None) -> Contribution:
        return Jacobian(batch_size)

    def combine(self, sums: Sums) -> Matrix:
        return gram_matrix(sums.objective_mean("h"), sums.objective_noise("h"))


@dataclass(frozen=True)
class Jacobian(Contribution):
    """h_i over the shared parameters, [M, d]."""

    gradients: ClassVar[bool] = True

    batch_size: int | None

    def compute(self, client: Client, message: Message) -> Arrays:
        return {"h": client.shared_jacobian(self.batch_size)}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"h": Field((sizes.M, sizes.d_shared), sizes.dtype)}
