"""Randomized SVD of the Jacobian as a square matrix: the paper's compressor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import FloatCompressor, Shape
from fedcmoo.messages import Field, Message, check

BLOCK = 2**22
"""Entries of the square that are in memory at a time, beside the Jacobian itself."""


@dataclass(frozen=True)
class RandomizedSVD(FloatCompressor):
    """Algorithm 3: the Jacobian reshaped to a square, zero-padded, and cut to its r leading singular components.

    The square has s = ceil(sqrt(M·d)) rows and columns and holds the entries of the paper's d x M matrix row by row: a
    parameter's M derivatives stand side by side. Rank r costs 2·s·r values, so r = floor(d / (2s)) uploads one
    model's worth of numbers. The range of the square is found by subspace iteration from a random start, and the square
    is passed over in blocks of rows, never copied.

    Args:
        power_iterations: passes that sharpen the range; each costs two products with the square.
        oversampling: columns beyond r while the range is searched, as a share of r.

    References:
        Halko, Martinsson and Tropp. Finding structure with randomness. SIAM Review, 2011. Algorithms 4.4 and 5.1.
    """

    unbiased: ClassVar[bool] = False

    power_iterations: int = 2
    oversampling: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power_iterations < 0:
            raise ValueError(f"power_iterations must not be negative, but got {self.power_iterations}")
        if not 0 <= self.oversampling < math.inf:
            raise ValueError(f"oversampling must be zero or positive, but got {self.oversampling}")

    def least(self, shape: Shape) -> int:
        return 2 * _side(shape) * self.dtype.itemsize + self.overhead

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        M, d = h.shape
        square = _Square(h)
        r = self._rank((M, d), budget)
        columns = min(square.side, r + math.ceil(self.oversampling * r))
        Y = square @ torch.randn(square.side, columns, generator=random).to(h)
        for _ in range(self.power_iterations):
            Y = square @ _orthonormal(square.transposed_times(_orthonormal(Y)))
        Q = _orthonormal(Y)  # [s, columns], spans the range
        U, S, Vh = torch.linalg.svd(square.transposed_times(Q).T, full_matrices=False)  # of Q^T A: [columns, s]
        right = self.pack("right", S[:r, None] * Vh[:r])
        return Message(left=(Q @ U[:, :r]).to(self.dtype), **right)

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        M, d = shape
        s, r = _side(shape), self._rank(shape, budget)
        check(payload, {"left": Field((s, r), self.dtype), **self.fields("right", (r, s))}, sender)
        square = payload["left"].float() @ self.unpack("right", payload)
        return square.view(-1)[: M * d].view(d, M).T

    def _rank(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        s = _side(shape)
        return min((budget - self.overhead) // (2 * s * self.dtype.itemsize), s)


class _Square:
    """The matrix h [M, d] as a square [s, s], block of rows by block of rows."""

    def __init__(self, h: Tensor) -> None:
        self.h = h
        self.M, self.d = h.shape
        self.side = _side((self.M, self.d))

    def __matmul__(self, right: Tensor) -> Tensor:
        """A X, for X [s, c]."""
        return torch.cat([self.rows(rows) @ right for rows in _row_blocks(self.side)])

    def transposed_times(self, right: Tensor) -> Tensor:
        """A^T X, for X [s, c]."""
        product = torch.zeros_like(right)
        for rows in _row_blocks(self.side):
            product.addmm_(self.rows(rows).T, right[rows])
        return product

    def rows(self, rows: slice) -> Tensor:
        """A block of rows [rows, s]: copied from one slice of h, with zeros beyond its end."""
        start, stop = rows.start * self.side, rows.stop * self.side  # among the entries of h^T, row by row
        first, last = start // self.M, -(-stop // self.M)  # the parameters that these belong to
        entries = self.h[:, first:last].T.reshape(-1)[start - first * self.M :][: stop - start]
        return torch.nn.functional.pad(entries, (0, stop - start - len(entries))).view(-1, self.side)


def _side(shape: Shape) -> int:
    M, d = shape
    return math.isqrt(M * d - 1) + 1


def _row_blocks(side: int) -> Iterator[slice]:
    step = max(1, BLOCK // side)
    for start in range(0, side, step):
        yield slice(start, min(start + step, side))


def _orthonormal(Y: Tensor) -> Tensor:
    Q: Tensor = torch.linalg.qr(Y).Q
    return Q
