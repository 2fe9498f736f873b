"""Codes for standard normal numbers, from eight bits per entry to a hundredth of a bit."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Codewords = NDArray[np.int32]
Floats = NDArray[np.float32]


class NormalCode(Protocol):
    """A code for blocks of independent standard normal numbers.

    Attributes:
        entries: the number of entries per codeword.
        bits: the number of bits of a codeword.
        error: E||x' - x||² / ||x||² where x' is decoded and scaled so that <x, x'> = ||x||².
    """

    @property
    def entries(self) -> int: ...

    @property
    def bits(self) -> int: ...

    @property
    def error(self) -> float: ...

    def encode(self, z: Floats) -> tuple[Codewords, Floats]:
        """The codewords of z [n, B], [n, B / entries], and <z, q> with their decoded entries q, [n]."""

    def decode(self, codewords: Codewords) -> Floats:
        """The decoded entries, up to a scale: [n, B]."""


@dataclass(frozen=True)
class ScalarCode:
    """The quantizer with 2^bits levels and least mean squared error for a normal variable, one codeword per entry.

    Its thresholds are halfway between levels, and each level is the mean of the values it represents.

    References:
        Lloyd. Least squares quantization in PCM. IEEE Transactions on Information Theory, 1982.
        Max. Quantizing for minimum distortion. IRE Transactions on Information Theory, 1960.

    >>> ScalarCode(2).error  # doctest: +ELLIPSIS
    0.133...
    """

    bits: int
    entries: int = 1

    @property
    def error(self) -> float:
        kept = _lloyd_max(self.bits)[2]
        return (1 - kept) / kept

    def encode(self, z: Floats) -> tuple[Codewords, Floats]:
        # numpy's searchsorted takes several times as long as bucketize
        codewords = torch.bucketize(torch.from_numpy(z), _lloyd_max(self.bits)[1], out_int32=True).numpy()
        return codewords, (z * self.decode(codewords)).sum(axis=1)

    def decode(self, codewords: Codewords) -> Floats:
        return _lloyd_max(self.bits)[0][codewords]


@dataclass(frozen=True)
class LargestCode:
    """Codes the position and sign of the largest entry of a group, one codeword per group; the others decode to zero.

    A group of g entries costs log2(g) + 1 bits. These are the codewords of the biorthogonal code {±e_1, …, ±e_g}. At
    the same number of bits the error is about a third less than that of the signs of a random subset.

    >>> z = np.array([[0.1, 0.2, -3.0, 0.4, 2.0, 0.6, 0.7, 0.8]], np.float32)
    >>> codewords, product = LargestCode(4).encode(z)
    >>> LargestCode(4).decode(codewords).tolist(), product.tolist()
    ([[0.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0]], [5.0])
    """

    entries: int

    @property
    def bits(self) -> int:
        return self.entries.bit_length()

    @property
    def error(self) -> float:
        return self.entries / _mean_largest(self.entries) ** 2 - 1

    def encode(self, z: Floats) -> tuple[Codewords, Floats]:
        index = np.abs(z).reshape(-1, self.entries).argmax(axis=1)
        largest = z.reshape(-1)[index + np.arange(0, z.size, self.entries)].reshape(len(z), -1)
        codewords = 2 * index.reshape(largest.shape) + (largest < 0)
        return codewords.astype(np.int32), np.abs(largest).sum(axis=1)

    def decode(self, codewords: Codewords) -> Floats:
        z = np.zeros((len(codewords), codewords.shape[1] * self.entries), np.float32)
        index = (codewords >> 1).reshape(-1) + np.arange(0, z.size, self.entries)
        z.reshape(-1)[index] = 1 - 2 * (codewords & 1).reshape(-1)
        return z


CODES: tuple[NormalCode, ...] = (
    *(LargestCode(2**k) for k in range(10, 1, -1)),
    *(ScalarCode(bits) for bits in range(1, 9)),
)
"""All codes, from the fewest bits to the most; each further bit lowers the error by less than the previous one."""


@lru_cache
def _lloyd_max(bits: int) -> tuple[Floats, Tensor, float]:
    """Levels and thresholds, float32, and the mean square of the quantized variable, by Lloyd's iteration."""
    n = 2**bits
    uniform = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    levels = math.sqrt(3) * torch.special.ndtri(uniform)  # the optimal density of many levels is that of N(0, 3)
    ends = torch.tensor([-math.inf, math.inf], dtype=torch.float64)
    for _ in range(200):
        thresholds = (levels[1:] + levels[:-1]) / 2
        edges = torch.cat([ends[:1], thresholds, ends[1:]])
        mass = torch.special.ndtr(edges).diff()
        levels = -torch.exp(-edges.square() / 2).diff() / (math.sqrt(2 * math.pi) * mass)
    return levels.float().numpy(), thresholds.float(), (mass * levels.square()).sum().item()


@lru_cache
def _mean_largest(n: int) -> float:
    """The expected largest magnitude of n standard normal numbers: the integral of 1 - P(|z| < t)^n."""
    t = torch.linspace(0, 10, 10_001, dtype=torch.float64)
    return torch.trapezoid(1 - torch.erf(t / math.sqrt(2)) ** n, t).item()
