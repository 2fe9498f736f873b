"""Random rotations of R^d, after which the entries of a block are nearly normal."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedcmoo.compression.base import random_signs, shared_words

BLOCK = 2048
"""The largest number of entries rotated together, a power of two."""


@dataclass(frozen=True)
class Rotation:
    """An orthogonal map of R^d drawn from a seed: random signs, permutations and Hadamard transforms of blocks, twice.

    One stage cuts the vector into blocks of B entries. Each entry is multiplied by a random sign, the entries of a
    block are permuted at random (by the same permutation in all blocks), and the block is multiplied by the Hadamard
    matrix H_B / sqrt(B). B is 2048, or the largest power of two up to d. If B does not divide d, the last B entries are
    transformed first in the same way, although most of them also belong to a whole block: the product of the two maps
    is orthogonal, and no padding is needed.

    After one stage the entries of a block have equal variance. After the second they are close to normal even if the
    block had only a few nonzero entries. Neighbours in x are often large together; without the permutation, neighbours
    in R x would therefore be dependent.

    Args:
        d: the dimension.
        seed: the seed of the signs.

    References:
        Ailon and Chazelle. The fast Johnson-Lindenstrauss transform and approximate nearest neighbors. SIAM Journal on
        Computing, 2009.
        Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher. EDEN: communication-efficient and robust
        distributed mean estimation for federated learning. ICML 2022.

    >>> R, x = Rotation(d=5, seed=0), torch.tensor([3.0, 0.0, 0.0, 0.0, 4.0])
    >>> round(R(x).norm().item(), 5)
    5.0
    >>> (R.inverse(R(x)) - x).abs().max().item() < 1e-5
    True
    """

    d: int
    seed: int

    def __call__(self, x: Tensor) -> Tensor:
        """Return R x, for x [d] in float32; x is not modified."""
        z = x.clone()
        places, _, steps = _draw(self.d, self.seed)
        for part, signs in steps:
            z[part] = hadamard((z[part] * signs).view(-1, self.B).index_select(1, places)).view(-1)
        return z

    def inverse(self, z: Tensor) -> Tensor:
        """Return R^T z, for z [d] in float32; z is not modified."""
        x = z.clone()
        _, back, steps = _draw(self.d, self.seed)
        for part, signs in reversed(steps):
            x[part] = hadamard(x[part].view(-1, self.B)).index_select(1, back).view(-1) * signs
        return x

    @property
    def B(self) -> int:
        return block_size(self.d)


@lru_cache(maxsize=1)  # a worker decodes what it has just encoded; this keeps 2 d signs
def _draw(d: int, seed: int) -> tuple[Tensor, Tensor, list[tuple[slice, Tensor]]]:
    """The permutation of a block, its inverse, and the parts that are cut into blocks and transformed, in order, with
    their signs."""
    B = block_size(d)
    whole = d - d % B
    stage = [slice(0, whole)] if whole == d else [slice(d - B, d), slice(0, whole)]
    lengths = [part.stop - part.start for part in 2 * stage]
    words = shared_words(seed, B + -(-sum(lengths) // 64))
    signs = torch.split(random_signs(words[B:], sum(lengths)), lengths)
    places = torch.from_numpy(words[:B].argsort())
    back = torch.empty_like(places).scatter_(0, places, torch.arange(B))
    return places, back, list(zip(2 * stage, signs, strict=True))


def block_size(d: int) -> int:
    """B: the largest power of two up to d, at most `BLOCK`."""
    return min(BLOCK, 1 << (d.bit_length() - 1))


def hadamard(blocks: Tensor) -> Tensor:
    """The rows of a float32 matrix [n, B] times H_B / sqrt(B), for B a power of two.

    H_B is the Kronecker product of two Hadamard matrices of about sqrt(B) rows, so two matrix products suffice, which
    is faster on a CPU than log2(B) passes of additions.

    >>> hadamard(torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5]]
    """
    B = blocks.shape[1]
    right = 1 << (B.bit_length() // 2)
    left = B // right
    products = (blocks.reshape(-1, right) @ _matrix(right)).view(-1, left, right)
    return torch.matmul(_matrix(left, B), products).view(-1, B)


@lru_cache
def _matrix(n: int, B: int = 1) -> Tensor:
    """H_n / sqrt(B), by Sylvester's construction."""
    H = torch.ones(1, 1)
    while len(H) < n:
        H = torch.cat([torch.cat([H, H], dim=1), torch.cat([H, -H], dim=1)])
    return H / math.sqrt(B)
