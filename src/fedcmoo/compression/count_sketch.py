"""CountSketch: a random linear projection that costs one pass over the data and keeps inner products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.compression.base import shared_words


@dataclass(frozen=True)
class CountSketch:
    """S: R^d -> R^k with E[(S u)^T (S v)] = u^T v, drawn from a seed.

    Every coordinate j has a random sign and a bucket in 0, …, k - 1, and (S u)_b is the sum of sign(j) u_j over the
    coordinates in bucket b. Here the coordinates are cut into blocks of k, and block c lies on the buckets with a
    random rotation: coordinate t of the block falls into bucket (t + r_c) mod k. Two coordinates of one block never
    meet, two of different blocks meet with probability 1/k, as with independent buckets; so the variance is

        Var[(S u)^T (S v)] <= 1/k (||u||² ||v||² + (u^T v)²)

    or less, it falls to zero at k = d, and to sketch is to add up slices: each entry is multiplied by ±1 (exact in
    floating point) and the slices are added in a fixed order, so the result has the same bits for every number of
    threads and on every platform.

    Args:
        d: the length of what is sketched.
        k: the length of the sketch.
        seed: of signs and rotations.

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
        """The sketch of every row of h [M, d]: [M, k]. No other array of h's size is made."""
        d, k = self.d, self.k
        blocks, sign_words = -(-d // k), -(-d // 64)
        words = shared_words(self.seed, sign_words + blocks)
        bits = np.unpackbits(words[:sign_words].astype("<u8").view(np.uint8), count=d)
        signs = torch.from_numpy(bits).to(h).mul_(2).sub_(1)
        rotations = (((words[sign_words:] >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32)).tolist()
        sketch = h.new_zeros(len(h), k)
        for c, rotation in enumerate(rotations):
            start, stop = c * k, min((c + 1) * k, d)
            turn = min(start + k - rotation, stop)  # from here on the block begins again at bucket 0
            for a, b, bucket in ((start, turn, rotation), (turn, stop, 0)):
                sketch[:, bucket : bucket + b - a].addcmul_(h[:, a:b], signs[a:b])
        return sketch
