"""The two-way estimator of the authors' runs, for comparison with the paper's table of estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, RandomizedSVD
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import check_own, inner
from fedcmoo.gram.two_way import Correction, TwoWay, difference_product, residual_norms
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes
from fedcmoo.settings import Named, registered
from fedcmoo.sums import Sums

CLEARLY_LARGER = 1.5
"""The ratio of the norms of ĥ and R above which the product of the residuals is left out."""


@dataclass(frozen=True)
class TwoWayAsRun(TwoWay):
    """`TwoWay` with two differences that make it less exact (benchmarks/gram.md).

    `compressed` is Σ_i ĥ_i^T (Q(Σ ĥ_j) - ĥ_i), with the sum as sent to clients instead of the server's own. And if the
    compressed parts are not clearly larger than the residuals, `dropped` is estimated as (n - 1) Σ_i R_i^T R_i, as if
    all clients had the same residual.
    """

    compressor: Named[Compressor] = registered(RandomizedSVD(), COMPRESSORS)

    def contributions(self, batch_size: int | None) -> Mapping[str, Contribution]:
        correction = CorrectionAndResidual(self.compressor, self.budget, batch_size)
        return {**super().contributions(batch_size), "correction": correction}

    def bounds(self, sums: Sums, sent: Tensor) -> dict[str, Tensor]:
        r = residual_norms(sums)
        return {**super().bounds(sums, sent), "residual": torch.outer(r, r)}

    def combine(self, sums: Sums, corrections: Sums, sent: Tensor) -> Tensor:
        scale = sums.P / corrections.P  # in case a client has failed since
        own, residual, mixed = sums["own"].double(), corrections["residual"] * scale, corrections["mixed"] * scale
        compressed = inner(sums["h"], sent) - sums["compressed_own"]
        total = own + (compressed + compressed.T) / 2 + mixed + mixed.T
        if sums["compressed_own"].trace() <= CLEARLY_LARGER**2 * residual.trace():
            total += (sums.count - 1) * residual
        return total


@dataclass(frozen=True)
class CorrectionAndResidual(Correction):
    """R_i^T (Q(Σ ĥ_j) - ĥ_i) and R_i^T R_i."""

    def compute(self, client: Client, message: Message) -> Arrays:
        h, compressed, compressed_sum = self.jacobians(client, message)
        mixed = difference_product(h, compressed_sum, minus=compressed)
        residual = difference_product(h, h, minus=compressed)
        return {"mixed": mixed.float(), "residual": residual.float()}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        square = Field((sizes.M, sizes.M), degree=2)
        return {"mixed": square, "residual": square}

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        arrays = super().decode(payload, sizes, sender)
        check_own(arrays["residual"], sender)
        return arrays
