"""ApproxGramJacobian, two-way (Algorithm 5, appendix B): downloading the compressed sum corrects part of the error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, RandomizedSVD, budget_bytes, check_budget
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import JACOBIAN, Estimate, Gram, check_own, columns, inner
from fedcmoo.gram.one_way import CompressedJacobian
from fedcmoo.messages import Field, Message, all_finite
from fedcmoo.randomness import generator
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.settings import Named, registered, resolve_names
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix

CLEARLY_LARGER = 1.5
"""The ratio of the norms of ĥ and R above which the product of the residuals is left out in `TwoWayAsRun`."""


@dataclass(frozen=True)
class TwoWay(Gram):
    """The one-way upload, followed by a download of the compressed sum, with which clients correct part of the error.

    As in appendix B, with ĥ_i = Q(h_i), the residual R_i = h_i - ĥ_i and n clients,

        n² G = Σ_i h_i^T h_i + Σ_i Σ_{j≠i} ĥ_i^T ĥ_j + Σ_i Σ_{j≠i} (R_i^T ĥ_j + ĥ_j^T R_i) + Σ_i Σ_{j≠i} R_i^T R_j
               own             compressed              mixed                                 dropped

    `own` comes from the clients exactly, [M, M] each. `compressed` is (Σ ĥ)^T (Σ ĥ) - Σ ĥ_i^T ĥ_i, which the server can
    compute. For `mixed` the server sends Q(Σ ĥ_j), and client i replies with R_i^T (Q(Σ ĥ_j) - ĥ_i), [M, M].
    The paper writes `mixed` as 2 Σ R_i^T (…); here it is that matrix plus its transpose, since G is symmetric.

    Args:
        compressor: Q, used by clients and server.
        budget: a client's upload, and its download, in multiples of d numbers, without the M x M matrices.
    """

    compressor: Named[Compressor] = registered(RandomizedSVD(), COMPRESSORS)
    budget: float = 1.0

    def __post_init__(self) -> None:
        resolve_names(self)
        check_budget(self.budget)

    def contributions(self, batch_size: int | None) -> Mapping[str, Contribution]:
        return {
            JACOBIAN: CompressedJacobianAndGram(batch_size, self.compressor, self.budget),
            "correction": Correction(self.compressor, self.budget, batch_size),
        }

    def estimate(self, server: Server, *others: str) -> Estimate:
        sums = yield Ask({JACOBIAN: Message(), **dict.fromkeys(others, Message())})
        jacobians = sums.part(JACOBIAN)
        if not all_finite(inner(jacobians["h"], jacobians["h"])):  # replies are finite, but their sum may overflow
            return np.full((server.sizes.M, server.sizes.M), np.inf), sums
        random = generator(server.seed, server.round, "gram", "compress")
        budget = budget_bytes(self.budget, server.sizes.d_shared)
        message = self.compressor.encode(jacobians["h"], budget, random)
        corrections = (yield Ask({"correction": message})).part("correction")
        sent = self.compressor.decode(message, (server.sizes.M, server.sizes.d_shared), budget, "the server")
        for name, bound in self.bounds(jacobians, sent).items():
            if (corrections[name].double().abs() > bound).any():
                server.notes[f"{name}_limited"] = 1.0
            corrections.totals[name] = corrections[name].double().clamp(-bound, bound)
        G: Matrix = sums.pair_mean(self.combine(jacobians, corrections, sent)).numpy()
        return G, sums

    def bounds(self, sums: Sums, sent: Tensor) -> dict[str, Tensor]:
        """The largest absolute values that the entries of a sum of corrections can have, by its name, [M, M].

        By the inequalities of Cauchy-Schwarz and Minkowski, with S = Q(Σ ĥ_j),

            |Σ_i R_ij^T (S - ĥ_i)_k| <= r_j (sqrt(n) ‖S_k‖ + sqrt(Σ_i ‖ĥ_ik‖²)),
            r_j = sqrt(Σ_i ‖h_ij‖²) + sqrt(Σ_i ‖ĥ_ij‖²).

        A larger sum shows that the correction of some client does not fit the gradients that it sent before.
        """
        rest = sums.count**0.5 * sent.double().norm(dim=1) + _norms(sums["compressed_own"])
        return {"mixed": torch.outer(residual_norms(sums), rest)}

    def combine(self, sums: Sums, corrections: Sums, sent: Tensor) -> Tensor:
        """n² G, float64 [M, M], given Q(Σ ĥ_j), [M, d]."""
        own = sums["own"].double()
        compressed = inner(sums["h"], sums["h"]) - sums["compressed_own"]
        mixed = corrections["mixed"] * (sums.P / corrections.P)  # in case a client has failed since
        return own + compressed + mixed + mixed.T


def residual_norms(sums: Sums) -> Tensor:
    """A bound on sqrt(Σ_i ‖R_ij‖²) for each objective j, float64 [M]."""
    return _norms(sums["own"]) + _norms(sums["compressed_own"])


def _norms(products: Tensor) -> Tensor:
    return products.double().diagonal().clamp(min=0).sqrt()


@dataclass(frozen=True)
class CompressedJacobianAndGram(CompressedJacobian):
    """ĥ_i = Q(h_i), and h_i^T h_i exactly."""

    def compute(self, client: Client, message: Message) -> Arrays:
        h = client.shared_jacobian(self.batch_size)
        return {"h": h, "own": inner(h, h).float()}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {**super().fields(sizes), "own": Field((sizes.M, sizes.M), degree=2)}

    def encode(self, arrays: Arrays, client: Client) -> Message:
        code = super().encode(arrays, client)
        if client.first is not None and torch.equal(arrays["h"], client.shared_jacobian(self.batch_size)):
            client.first.codes[JACOBIAN] = code  # no stage has changed h, which the correction needs
        return Message(**code, own=arrays["own"])

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        own, rest = payload.take("own", Field((sizes.M, sizes.M)), sender)
        check_own(own, sender)
        h = super().decode(rest, sizes, sender)["h"]
        return {"h": h, "own": own, "compressed_own": inner(h, h)}


@dataclass(frozen=True)
class Correction(Contribution):
    """R_i^T (Q(Σ ĥ_j) - ĥ_i), given Q(Σ ĥ_j). If ĥ_i was not kept, h_i is compressed again, with the same draws.

    A client of weight p_i has sent p_i ĥ_i and its correction will be multiplied by p_i², so it divides the sum by p_i.
    """

    homogeneous: ClassVar[bool] = False  # it depends on what the other clients sent

    compressor: Compressor
    budget: float
    batch_size: int | None

    def compute(self, client: Client, message: Message) -> Arrays:
        h, compressed, compressed_sum = self.jacobians(client, message)
        return {"mixed": difference_product(h, compressed_sum, minus=compressed).float()}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"mixed": Field((sizes.M, sizes.M), degree=2)}

    def jacobians(self, client: Client, message: Message) -> tuple[Tensor, Tensor, Tensor]:
        """h_i, ĥ_i and Q(Σ ĥ_j), all [M, d]."""
        h = client.shared_jacobian(self.batch_size)
        M, d = h.shape
        budget = budget_bytes(self.budget, d)
        kept = client.first.codes.get(JACOBIAN) if client.first is not None else None
        payload = kept or self.compressor.encode(h, budget, client.random("compress"))
        compressed = self.compressor.decode(payload.cpu(), (M, d), budget, str(client))
        compressed_sum = self.compressor.decode(message, (M, d), budget, "the server")
        return h, compressed.to(h), compressed_sum.to(h) / client.weight


def difference_product(a: Tensor, b: Tensor, minus: Tensor) -> Tensor:
    """(a - minus) (b - minus)^T in float64 [M, M], for rows [M, d], without storing a difference of their size."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for block in columns(a.shape[1]):
        total += (a[:, block] - minus[:, block]) @ (b[:, block] - minus[:, block]).T
    return total


@dataclass(frozen=True)
class TwoWayAsRun(TwoWay):
    """`TwoWay` as in the authors' runs, with two differences that make it less exact (benchmarks/gram.md).

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
