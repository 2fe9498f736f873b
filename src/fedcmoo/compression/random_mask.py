"""Random masking: a random subset of the entries."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.compression.base import FloatCompressor, Shape, shared_words
from fedcmoo.messages import BadMessageError, Field, Message, check

SEED_BYTES = 8


@dataclass(frozen=True)
class RandomMask(FloatCompressor):
    """Sends K of the L = M·d entries, at positions that both sides draw from a seed, which is sent in their place.

    The entries are cut in order into K runs of (nearly) equal length. One random entry of each run is sent, multiplied
    by the run's length; the others decode to zero. Every entry is sent with probability 1 / length, so that the
    decoded matrix is unbiased, and K is always the largest that the budget allows.
    """

    unbiased: ClassVar[bool] = True

    def least(self, shape: Shape) -> int:
        return SEED_BYTES + self.overhead + self.dtype.itemsize

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        seed = torch.randint(2**63 - 1, (1,), generator=random)
        M, d = h.shape
        index, length = _positions(int(seed), M * d, self._count((M, d), budget))
        index, length = index.to(h.device), length.to(h.device)
        return Message(seed=seed, **self.pack("entries", h[index // d, index % d] * length))

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        count = self._count(shape, budget)
        check(payload, {"seed": Field((1,), torch.int64), **self.fields("entries", (count,))}, sender)
        seed = int(payload["seed"])
        if seed < 0:
            raise BadMessageError(f"{sender}: 'seed' must not be negative, but is {seed}")
        M, d = shape
        index, _ = _positions(seed, M * d, count)
        h = torch.zeros(M * d)
        h[index] = self.unpack("entries", payload)
        return h.view(M, d)

    def _count(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        M, d = shape
        return min((budget - SEED_BYTES - self.overhead) // self.dtype.itemsize, M * d)


def _positions(seed: int, entries: int, count: int) -> tuple[Tensor, Tensor]:
    """One random position in each of `count` runs that cover `entries`, and the runs' lengths: int64 [count] both.
    Uses integers only, so that all platforms agree."""
    bounds = np.arange(count + 1, dtype=np.int64) * entries // count
    start, length = bounds[:-1], np.diff(bounds)
    offset = ((shared_words(seed, count) >> np.uint64(32)) * length.astype(np.uint64)) >> np.uint64(32)
    return torch.from_numpy(start + offset.astype(np.int64)), torch.from_numpy(length)
