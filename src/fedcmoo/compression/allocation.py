"""Bit allocation: the blocks of a vector, and the code of each block."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcmoo.compression.base import BLOCK
from fedcmoo.compression.normal_codes import CODES, NormalCode

Levels = NDArray[np.uint8]
"""For every block, the index of its code in `CODES`."""


@dataclass(frozen=True)
class Blocks:
    """The division of a vector of d entries into n = ceil(d / B) blocks of B entries; the last may be shorter.

    Args:
        d: the number of entries.
        B: the number of entries of a block, a power of two up to d.
    """

    d: int
    B: int

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of entries of each block, [n]."""
        starts = np.arange(0, self.d, self.B)
        return np.minimum(self.B, self.d - starts)

    @cached_property
    def lowest(self) -> int:
        """The first of `CODES` whose groups fit into a block."""
        return next(level for level, code in enumerate(CODES) if code.entries <= self.B)

    def split(self, z: Tensor) -> Tensor:
        """The blocks of z [d] as rows [n, B], with zeros after the last."""
        return torch.nn.functional.pad(z, (0, -self.d % self.B)).view(-1, self.B)

    def nbytes(self, level: int) -> int:
        """The bytes of all codewords if every block uses this code."""
        return int(self._bytes[level].sum())

    @cached_property
    def _bytes(self) -> NDArray[np.int64]:
        """The bytes of a block's codewords in every code: [codes, n]."""
        return np.stack([-(-(-(-self.lengths // code.entries) * code.bits) // 8) for code in CODES])

    def allocate(self, energy: NDArray[np.float64], budget: int) -> Levels:
        """Choose the blocks' codes to make the expected error Σ_b energy_b · error(code_b) small within a budget.

        Every block starts with the cheapest code. Steps to the next code are then taken in order of the error reduction
        per bit, each if the remaining budget allows it.

        Args:
            energy: the energy ||z_b||² of each block, [n].
            budget: in bytes, at least enough for the cheapest code everywhere.
        """
        slopes, extra = self._steps
        n, left = len(self.lengths), budget - self.nbytes(self.lowest)
        levels = [self.lowest] * n
        order = np.argsort(np.outer(slopes, energy / self.lengths), axis=None, kind="stable")  # steepest fall first
        cheapest = extra.min(initial=left)
        for step, cost in zip(order.tolist(), extra[order].tolist(), strict=True):
            if left < cheapest:
                break
            level, b = divmod(step, n)
            if cost <= left and levels[b] == self.lowest + level:
                levels[b] += 1
                left -= cost
        return np.array(levels, np.uint8)

    @cached_property
    def _steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The change of the error per bit of an entry [steps] and the additional bytes of each block [steps * n], for
        the steps from each code to the next."""
        error = np.array([code.error for code in CODES[self.lowest :]])
        rate = np.array([code.bits / code.entries for code in CODES[self.lowest :]])
        return np.diff(error) / np.diff(rate), np.diff(self._bytes[self.lowest :], axis=0).ravel()

    def used(self, levels: Levels) -> int:
        """The bytes of all codewords."""
        return int(self._bytes[levels, np.arange(len(levels))].sum())

    def pieces(self, levels: Levels) -> Iterator[tuple[NDArray[np.int64], NormalCode, int]]:
        """Groups of blocks coded together (indices, code, bytes per block), in the order in which they are sent."""
        whole = self.d // self.B
        step = max(1, BLOCK // self.B)
        for level in np.unique(levels[:whole]).tolist():
            same = np.flatnonzero(levels[:whole] == level)
            for start in range(0, len(same), step):
                yield same[start : start + step], CODES[level], int(self._bytes[level, 0])
        if whole < len(levels):
            yield np.array([whole]), CODES[levels[-1]], int(self._bytes[levels[-1], -1])
