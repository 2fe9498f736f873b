"""Estimate the Gram matrix from a random sketch that all clients share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedcmoo.client import Client
from fedcmoo.compression import NUMBER, CountSketch, budget_bytes, check_budget
from fedcmoo.compression.quantizer import dequantize, quantize, quantized_bytes, quantized_length
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import OnePhase, check_own, gram_matrix, inner
from fedcmoo.messages import Field, Message, check
from fedcmoo.randomness import derive
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix

LEAST_BYTES = 64
"""The smallest sketch of one gradient. Only the budgets of very small models allow less."""
SHARE, LARGEST_SHARE, ENTRIES = 0.01, 0.1, 1024
"""The default budget: `SHARE` · d numbers, or what `ENTRIES` entries per gradient take if that is more, but at most
`LARGEST_SHARE` · d. The error depends on the number of entries, not on d; with 1,024 it is about 4 % of ||G||."""


@dataclass(frozen=True)
class Sketch(OnePhase):
    """Estimates G from a shared random projection with few bits per entry: the least error for the least traffic.

    All clients project their Jacobian with the same random matrix S, drawn from a seed that the server sends.
    Client i uploads y_i ≈ S h_i, k x M numbers of `bits` bits, rounded at random without bias; and the small matrix
    C_i = h_i^T h_i - y_i^T y_i, which makes its own term exact. The sketch is linear, so the mean of sketches is the
    sketch of the mean, and

        G = (1/n Σ y_i)^T (1/n Σ y_i) + 1/n² Σ C_i

    is unbiased (and may have slightly negative eigenvalues, as errors have both signs). Only products of different
    clients have an error, which falls as 1/sqrt(k) whatever the Jacobian's spectrum. Few bits and a longer sketch are
    better than the reverse, since both errors average out and four bits already add little; if all d entries fit, the
    bits increase instead.

    Args:
        budget: a client's total upload, in multiples of d numbers of 32 bits. Only if that leaves less than 64 bytes
            for the sketch of a gradient (small models, many objectives), it uploads 64 bytes per gradient and the M x M
            matrix. By default d/100, or more if the sketch of a gradient would have fewer than 1,024 entries (small
            models, many objectives, 32 bits), but at most d/10.
        bits: bits per entry of the sketch: 2, 4, 8, 16, or 32 for plain floats. With 32 the server needs only sums, as
            secure aggregation provides.
        correction: whether clients send C_i. Without it, G has a larger error and a bias from the rounding to few
            bits, but the sketch is all that leaves a client, as differential privacy requires.

    References:
        Charikar, Chen and Farach-Colton. Finding frequent items in data streams. ICALP 2002.
    """

    budget: float | None = None
    bits: int = 4
    correction: bool = True

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_budget(self.budget)
        if self.bits not in (2, 4, 8, 16, 32):
            raise ValueError(f"bits must be 2, 4, 8, 16 or 32, but got {self.bits}")

    def within(self, upload: float) -> Sketch:
        return replace(self, budget=upload)

    def contribution(self, batch_size: int | None) -> Contribution:
        return SketchedJacobian(self.budget, self.bits, batch_size, self.correction)

    def message(self, server: Server) -> Message:
        return Message(seed=torch.tensor([derive(server.seed, server.round, "sketch")]))

    def combine(self, sums: Sums) -> Matrix:
        G = gram_matrix(sums.objective_mean("sketch"), sums.objective_noise("sketch"))  # of 1/n Σ y_i: [M, k]
        return G + sums.pair_mean(sums["own"].double()).numpy() if self.correction else G


@dataclass(frozen=True)
class SketchedJacobian(Contribution):
    """S h_i [M, k], sent as y_i ≈ S h_i, and h_i^T h_i [M, M], sent as C_i = h_i^T h_i - y_i^T y_i."""

    gradients: ClassVar[bool] = True

    budget: float | None
    bits: int
    batch_size: int | None
    correction: bool = True

    @property
    def summable(self) -> bool:  # type: ignore[override]
        return self.bits == 32

    def compute(self, client: Client, message: Message) -> Arrays:
        check(message, {"seed": Field((1,), torch.int64)}, "the server")
        h = client.shared_jacobian(self.batch_size)
        k, _ = self.size(h.shape)
        sketch = CountSketch(h.shape[1], k, int(message["seed"]))(h)
        return {"sketch": sketch, "own": inner(h, h)} if self.correction else {"sketch": sketch}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        k, _ = self.size((sizes.M, sizes.d_shared))
        own = Field((sizes.M, sizes.M), torch.float64, degree=2)
        return {"sketch": Field((sizes.M, k)), "own": own} if self.correction else {"sketch": Field((sizes.M, k))}

    def encode(self, arrays: Arrays, client: Client) -> Message:
        sketch = arrays["sketch"]
        _, bits = self.size((client.sizes.M, client.sizes.d_shared))
        if bits == 32:
            payload = Message(sketch=sketch.float())
        else:
            payload = quantize(sketch, bits, client.random("compress"), rounded=sketch)  # now as it is sent
        if not self.correction:
            return payload
        return Message(**payload, own=(arrays["own"] - inner(sketch, sketch)).float())

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        k, bits = self.size((sizes.M, sizes.d_shared))
        own = None
        if self.correction:
            own, payload = payload.take("own", Field((sizes.M, sizes.M)), sender)
        if bits < 32:
            sketch = dequantize(payload, (sizes.M, k), bits, sender)
        else:
            check(payload, {"sketch": Field((sizes.M, k))}, sender)
            sketch = payload["sketch"]
        if own is None:
            return {"sketch": sketch}
        check_own(own, sender, rest=inner(sketch, sketch))
        return {"sketch": sketch, "own": own}

    def size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """k and the bits of an entry that the budget allows for an [M, d] Jacobian."""
        M, d = shape
        correction = NUMBER * M * M if self.correction else 0
        if self.budget is None:
            enough = quantized_bytes((M, ENTRIES), self.bits) + correction
            budget = min(max(budget_bytes(SHARE, d), enough), budget_bytes(LARGEST_SHARE, d))
        else:
            budget = budget_bytes(self.budget, d)
        row = max(LEAST_BYTES, (budget - correction) // M)  # bytes for one gradient
        bits = self.bits
        while bits < 32 and quantized_length(row, 2 * bits) >= d:
            bits *= 2
        return min(d, quantized_length(row, bits)), bits
