"""Randomized SVD of the Jacobian as a nearly square matrix: the paper's compressor."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import FloatCompressor, Shape
from fedcmoo.messages import Field, Message, check


@dataclass(frozen=True)
class RandomizedSVD(FloatCompressor):
    """Algorithm 3: the Jacobian, zero-padded and reshaped to a square, truncated to its r leading singular components.

    Each gradient is cut into chunks of s ≈ sqrt(M·d) consecutive entries, and every chunk is a row, so that the matrix
    is nearly square and no row mixes objectives. (The authors' runs use the chunks as columns, which gives the same
    SVD. A row-major reshape of the paper's d x M matrix, which mixes them, is less exact.) Rank r costs
    r·(rows + columns), about 2·r·sqrt(M·d) values. The range is found by subspace iteration from a random start, and
    the Jacobian is never copied.

    Args:
        power_iterations: passes that sharpen the range; each costs two products with the square.
        oversampling: additional columns in the range search, as a share of r.

    References:
        Halko, Martinsson and Tropp. Finding structure with randomness. SIAM Review, 2011. Algorithms 4.4 and 5.1.
        Li, Linderman, Szlam, Stanton, Kluger and Tygert. Algorithm 971. ACM TOMS, 2017. (LU between the products.)
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
        return sum(_shape(shape)) * self.dtype.itemsize + self.overhead

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        shape = (h.shape[0], h.shape[1])
        A = _Chunks(h)
        rows, s = _shape(shape)
        r = self._rank(shape, budget)
        columns = min(rows, s, r + math.ceil(self.oversampling * r))
        Y = A @ torch.randn(s, columns, generator=random).to(h)
        for _ in range(self.power_iterations):
            Y = A @ _basis(A.transposed_times(_basis(Y)))
        Q = torch.linalg.qr(Y).Q  # [rows, columns], spans the range
        B = A.transposed_times(Q)  # the transpose of Q^T A: [s, columns]
        # Its right singular vectors as eigenvectors of B^T B, in float64: faster than an SVD of B in float32, and no
        # less accurate.
        U = torch.linalg.eigh(B.T.double() @ B.double()).eigenvectors.flip(1)[:, :r].to(B)
        return Message(left=(Q @ U).to(self.dtype), **self.pack("right", (B @ U).T.contiguous()))

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        M, d = shape
        rows, s = _shape(shape)
        r = self._rank(shape, budget)
        check(payload, {"left": Field((rows, r), self.dtype), **self.fields("right", (r, s))}, sender)
        A = payload["left"].float() @ self.unpack("right", payload)
        return A.view(M, -1)[:, :d]

    def _rank(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        rows, s = _shape(shape)
        return min((budget - self.overhead) // ((rows + s) * self.dtype.itemsize), rows, s)


class _Chunks:
    """The matrix of the chunks of h [M, d], rows of s entries; a gradient's last row ends with zeros."""

    def __init__(self, h: Tensor) -> None:
        self.h = h
        self.rows, self.s = _shape((h.shape[0], h.shape[1]))

    def __matmul__(self, right: Tensor) -> Tensor:
        """A X [rows, c], for X [s, c]."""
        products = []
        for full, last in self._gradients():
            products += [full @ right, (last @ right[: len(last)])[None]]
        return torch.cat(products)

    def transposed_times(self, right: Tensor) -> Tensor:
        """A^T X [s, c], for X [rows, c]."""
        product = right.new_zeros(self.s, right.shape[1])
        for (full, last), own in zip(self._gradients(), right.chunk(len(self.h)), strict=True):
            product.addmm_(full.T, own[:-1])
            product[: len(last)].addr_(last, own[-1])
        return product

    def _gradients(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each gradient's rows: the full ones as a view [n, s], and the remainder for the last one."""
        n = self.rows // len(self.h) - 1
        for gradient in self.h:
            yield gradient[: n * self.s].reshape(n, self.s), gradient[n * self.s :]


def _shape(shape: Shape) -> Shape:
    """Rows and columns of the matrix of chunks."""
    M, d = shape
    s = -(-d // max(1, round(math.sqrt(d / M))))
    return M * -(-d // s), s


def _basis(Y: Tensor) -> Tensor:
    """A well-conditioned basis of the columns of Y [n, k]: P L of the LU decomposition Y = P L U.

    For large k this is faster than the Q of a QR decomposition.
    P is applied as a list of swaps, since as a matrix it would be as large as the Jacobian.
    """
    LU, pivots, _ = torch.linalg.lu_factor_ex(Y)  # raises no error if Y is rank-deficient
    order = list(range(len(Y)))
    for i, pivot in enumerate(pivots.tolist()):
        order[i], order[pivot - 1] = order[pivot - 1], order[i]
    L = LU.tril_(-1)
    L.diagonal().fill_(1)
    return torch.empty_like(L).index_copy_(0, torch.tensor(order, device=L.device), L)
