"""An integer code for secure aggregation: the sum of the clients' codes decodes to the sum of their vectors."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcmoo.compression.rotation import Rotation
from fedcmoo.validation import positive

REACH = 5.0
"""The end of the grid, in standard deviations of a rotated entry of a vector with the largest norm."""


@dataclass(frozen=True)
class SharedGrid:
    """Codes vectors of R^d as d integers modulo 2^bits; all clients share a rotation, a range and a step.

    A client rotates its vector x, of norm up to `bound`, so that its entries are nearly normal with a standard
    deviation of at most σ = bound / sqrt(d), and rounds z = R x at random, without bias, to multiples of a step:

        c = floor(z / step + u) mod 2^bits,   u uniform on [0, 1),   step = 5 σ / s,   s = floor((2^(bits-1) - 1) / n)

    Entries are clipped at ± 5 σ, which one in a million reaches, so a code is from -s to s, and the sum of n codes
    never wraps around. The server needs only the sum modulo 2^bits, and R^T (step · sum) is Σ x_i on average. Each
    client adds an error of E||x' - x||² <= d step² / 4 = bound² · 25 / (4 s²).

    Args:
        d: the dimension.
        n: the largest number of clients in a sum.
        bound: the bound on every client's norm; longer vectors must be clipped to it before.
        seed: the seed of the rotation, the same at all clients.
        bits: the number of bits of an entry on the wire.

    References:
        Suresh, Yu, Kumar and McMahan. Distributed mean estimation with limited communication. ICML 2017.
        Bonawitz, Salehi, Konečný, McMahan and Gruteser. Federated learning with autotuned communication-efficient
        secure aggregation. Asilomar 2019.

    >>> grid = SharedGrid(d=4, n=2, bound=10.0, seed=3, bits=16)
    >>> x, y, random = torch.tensor([3.0, 4, 0, 0]), torch.tensor([0.0, 1, 0, -2]), torch.Generator()
    >>> total = (grid.encode(x, random) + grid.encode(y, random)) % grid.modulus
    >>> grid.decode(total).round(decimals=1).abs().tolist()
    [3.0, 5.0, 0.0, 2.0]
    """

    d: int
    n: int
    bound: float
    seed: int
    bits: int = 16

    def __post_init__(self) -> None:
        positive(bound=self.bound)
        if not 1 <= self.bits <= 32:
            raise ValueError(f"bits must be from 1 to 32, but got {self.bits}")
        if self.n < 1 or self.levels < 1:
            least = max(2, self.n.bit_length() + 1)
            raise ValueError(f"bits must be at least {least} for the sum of {self.n} clients, but got {self.bits}")

    @property
    def modulus(self) -> int:
        """The modulus 2^bits of sums of codes."""
        return int(2**self.bits)

    @property
    def levels(self) -> int:
        """s: a client's codes are from -s to s."""
        return (self.modulus // 2 - 1) // self.n

    @property
    def step(self) -> float:
        """The value of one level."""
        return REACH * self.bound / math.sqrt(self.d) / self.levels

    def encode(self, x: Tensor, random: torch.Generator) -> Tensor:
        """The codes of x [d], from 0 to 2^bits - 1, int64 [d]."""
        noise = torch.rand(self.d, generator=random)
        scaled = self._rotate(x.float().cpu()).double() / self.step
        codes = scaled.add_(noise).floor_().clamp_(-self.levels, self.levels)
        return codes.long().remainder_(self.modulus)

    def decode(self, total: Tensor) -> Tensor:
        """The sum of the vectors, float32 [d], from the sum of their codes modulo 2^bits, int64 [d]."""
        half = self.modulus // 2
        signed = (total + half).remainder_(self.modulus).sub_(half)
        return self._rotate_back(signed.float().mul_(self.step))

    def _rotate(self, x: Tensor) -> Tensor:
        """Compute R x: two rotations in blocks, with a permutation in between that mixes all blocks."""
        return self._rotations[1](self._rotations[0](x)[_mixed(self.d)])

    def _rotate_back(self, z: Tensor) -> Tensor:
        mixed = self._rotations[1].inverse(z)
        return self._rotations[0].inverse(torch.empty_like(mixed).index_copy_(0, _mixed(self.d), mixed))

    @property
    def _rotations(self) -> tuple[Rotation, Rotation]:
        return Rotation(self.d, self.seed), Rotation(self.d, self.seed + 1)


def _mixed(d: int) -> Tensor:
    """A permutation of 0, …, d - 1 that spreads entries evenly over all positions: multiples of a number near
    d / golden ratio that is coprime to d."""
    golden = (math.sqrt(5) - 1) / 2
    stride = next(m for m in range(max(1, round(golden * d)), 2 * d + 1) if math.gcd(m, d) == 1)
    return torch.arange(d).mul_(stride).remainder_(d)
