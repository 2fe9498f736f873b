"""CountSketch: a random linear projection that takes one pass over the data and preserves inner products."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedcmoo.compression.base import random_signs, row_blocks, shared_words


@dataclass(frozen=True)
class CountSketch:
    """A random linear map S: R^d -> R^k, drawn from a seed, with E[(S u)^T (S v)] = u^T v.

    Every coordinate j has a random sign and a bucket in 0, …, k - 1, and (S u)_b is the sum of sign(j) u_j over the
    coordinates in bucket b. Here the signed coordinates are cut into blocks of k, and the blocks are folded: the second
    half is rotated by a random number of positions and added to the first half, until one block is left. Two
    coordinates of one block never collide. Two of different blocks are shifted relative to each other by a sum of
    rotations. The last of these, when their blocks are added, is independent of the others, so they collide with
    probability 1/k, as with independent buckets. Since the signs are independent, the variance depends on nothing else:

        Var[(S u)^T (S v)] <= 1/k (||u||² ||v||² + (u^T v)²)

    It falls to zero at k = d. Each entry is multiplied by ±1 (exact in floating point) and slices are added in a fixed
    order, so the result has the same bits for every number of threads and on every platform.

    Args:
        d: the length of the vectors.
        k: the length of the sketch.
        seed: the seed of signs and rotations.

    References:
        Charikar, Chen and Farach-Colton. Finding frequent items in data streams. ICALP 2002.
        Weinberger, Dasgupta, Langford, Smola and Attenberg. Feature hashing for large scale multitask learning.
        ICML 2009.

    >>> S = CountSketch(d=6, k=4, seed=0)
    >>> S(torch.eye(6)).abs().sum(dim=1).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    d: int
    k: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.d:
            raise ValueError(f"k must be from 1 to d = {self.d}, but got {self.k}")

    def __call__(self, h: Tensor) -> Tensor:
        """Sketch every row of h [M, d]: [M, k]. Only a few rows of a large h are copied at a time."""
        signs, rotations = _draw(self.seed, self.d, self.k)
        signs = signs.to(h)
        sketch = h.new_empty(len(h), self.k)
        for rows in row_blocks(*h.shape):
            sketch[rows] = self._fold(h[rows] * signs, rotations)
        return sketch

    def _fold(self, signed: Tensor, rotations: Iterable[int]) -> Tensor:
        """Add up the blocks of each row [M, d], halving their number with each rotation: [M, k]."""
        k, blocks = self.k, -(-self.d // self.k)
        x = torch.nn.functional.pad(signed, (0, blocks * k - self.d)).view(-1, blocks, k)
        for rotation in rotations:
            kept = -(-x.shape[1] // 2)
            x, later = x[:, :kept], x[:, kept:]
            x[:, : later.shape[1]] += later.roll(rotation, dims=2)
        return x[:, 0]


@lru_cache(maxsize=1)  # the same for all clients of a cohort
def _draw(seed: int, d: int, k: int) -> tuple[Tensor, list[int]]:
    """Signs ±1, float32 [d], and a rotation for each time that the number of blocks is halved."""
    sign_words, halvings = -(-d // 64), (-(-d // k) - 1).bit_length()
    words = shared_words(seed, sign_words + halvings)
    rotations = [(int(word) * k) >> 64 for word in words[sign_words:]]
    return random_signs(words[:sign_words], d), rotations
