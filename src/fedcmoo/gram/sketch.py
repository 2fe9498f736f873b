"""The Gram matrix from a random sketch that all clients share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import NUMBER, CountSketch, Shape
from fedcmoo.compression.quantizer import dequantize, quantize, quantized_length
from fedcmoo.gram.base import Estimate, budget_bytes, check_budget, inner, shared_jacobian, take_square
from fedcmoo.messages import Field, Message, check
from fedcmoo.randomness import derive
from fedcmoo.rounds import Ask, Server, Sizes, Task
from fedcmoo.types import Matrix

LEAST_BYTES = 256
"""For the sketch of one gradient. A budget that allows less is that of a model so small that it does not matter."""


@dataclass(frozen=True)
class Sketch:
    """A random projection that all clients share, in a few bits an entry: the least error for the least traffic.

    All clients project their Jacobian by one random matrix S, drawn from a seed that the server sends.
    Client i uploads y_i ≈ S h_i, k x M numbers of `bits` bits, rounded at random without bias; and the small matrix
    C_i = h_i^T h_i - y_i^T y_i, which makes its own term exact. The sketch is linear, so the mean of sketches is the
    sketch of the mean, and

        G = (1/n Σ y_i)^T (1/n Σ y_i) + 1/n² Σ C_i

    is unbiased (and may have slightly negative eigenvalues, as errors have both signs). Only products of different
    clients have an error, which falls as 1/sqrt(k) whatever the Jacobian's spectrum. Few bits and a longer sketch are
    better than the reverse, since both errors average out and four bits already add little; where all d entries fit,
    the bits grow instead.

    Args:
        budget: what a client uploads, in multiples of d numbers of 32 bits, everything included. Only where that would
            leave less than 256 bytes for the sketch of a gradient (small models, many objectives) it uploads that much
            and the M x M matrix.
        bits: of an entry of the sketch: 2, 4, 8, 16, or 32 for plain floats. With 32 the server needs only sums, as
            secure aggregation gives them.

    References:
        Charikar, Chen and Farach-Colton. Finding frequent items in data streams. ICALP 2002.
    """

    asks_cohort: ClassVar[bool] = True

    budget: float = 0.1
    bits: int = 4

    def __post_init__(self) -> None:
        check_budget(self.budget)
        if self.bits not in (2, 4, 8, 16, 32):
            raise ValueError(f"bits must be 2, 4, 8, 16 or 32, but got {self.bits}")

    @property
    def sums_only(self) -> bool:
        return self.bits == 32

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        return {"jacobian": UploadSketch(self.budget, self.bits, batch_size)}

    def estimate(self, server: Server) -> Estimate:
        seed = derive(server.seed, server.round, "sketch")
        sums = yield Ask("jacobian", Message(seed=torch.tensor([seed])))
        mean = sums.mean("sketch")  # 1/n Σ y_i: [M, k]
        G: Matrix = (inner(mean, mean) + sums["correction"].double() / sums.count**2).numpy()
        return G


@dataclass(frozen=True)
class UploadSketch(Task):
    """y_i ≈ S h_i [M, k], and C_i = h_i^T h_i - y_i^T y_i [M, M]."""

    budget: float
    bits: int
    batch_size: int | None

    def answer(self, client: Client, message: Message) -> Message:
        check(message, {"seed": Field((1,), torch.int64)}, "the server")
        h = shared_jacobian(client, self.batch_size)
        k, bits = self.size(h.shape)
        sketch = CountSketch(h.shape[1], k, int(message["seed"]))(h)
        payload = encode(sketch, bits, client.random("compress"))  # the sketch now is as it is sent
        correction = (inner(h, h) - inner(sketch, sketch)).float()
        return Message(**payload, correction=correction)

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        correction, payload = take_square(reply, "correction", sizes.M, sender)
        k, bits = self.size((sizes.M, sizes.d_shared))
        return {"sketch": decode(payload, (sizes.M, k), bits, sender), "correction": correction}

    def size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """k, and the bits of an entry: for an [M, d] Jacobian, what the budget allows."""
        M, d = shape
        # Bytes for the sketch of one gradient.
        row = max(LEAST_BYTES, (budget_bytes(self.budget, d) - NUMBER * M * M) // M)
        bits = self.bits
        while bits < 32 and quantized_length(row, 2 * bits) >= d:
            bits *= 2
        return min(d, quantized_length(row, bits)), bits


def encode(sketch: Tensor, bits: int, random: torch.Generator) -> Message:
    """A sketch [M, k] in so many bits an entry. It becomes what `decode` will return."""
    return Message(sketch=sketch.float()) if bits == 32 else quantize(sketch, bits, random, rounded=sketch)


def decode(payload: Message, shape: Shape, bits: int, sender: str) -> Tensor:
    """Check what `encode` made, and return it as float32 [M, k]."""
    if bits < 32:
        return dequantize(payload, shape, bits, sender)
    check(payload, {"sketch": Field(shape)}, sender)
    return payload["sketch"]
