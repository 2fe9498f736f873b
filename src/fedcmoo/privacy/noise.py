"""Cryptographically secure random numbers: Gaussian noise, and the keystreams that it and masks come from.

Each array of noise comes from a ChaCha20 keystream under a fresh key of 256 bits from the operating system, so it is
unpredictable even given the run's seed and all earlier noise. Noise is drawn and added in float64, and the result is
rounded to the precision of the sum. Attacks on the floating-point representation of the noise are not covered beyond
that.
"""

import math
import secrets

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcmoo.optional import require
from fedcmoo.types import Vector

KEY = 32
"""Bytes of a key."""

BLOCK = 2**20
"""The number of noise entries drawn at a time, under one key."""


def add_noise(total: Tensor, std: float) -> Tensor:
    """`total` with independent N(0, std²) added to each entry."""
    noised = total.detach().to("cpu", torch.float64, copy=True).flatten()
    for start in range(0, noised.numel(), BLOCK):
        block = noised[start : start + BLOCK]
        block.add_(torch.from_numpy(gaussian(secrets.token_bytes(KEY), block.numel())), alpha=std)
    return noised.view(total.shape).to(total)


def gaussian(key: bytes, count: int) -> Vector:
    """Standard normal numbers from the keystream of a key, by the method of Box and Muller.

    Uniform numbers have 53 bits, so entries beyond 8.57 do not occur.
    """
    pairs = -(-count // 2)
    words = keystream(key, 4 * pairs).view("<u8")
    uniform = (words >> np.uint64(11)) * 2.0**-53  # in [0, 1)
    radius = np.sqrt(-2 * np.log1p(-uniform[:pairs]))
    angle = 2 * math.pi * uniform[pairs:]
    normal: Vector = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return normal[:count]


def keystream(key: bytes, words: int) -> NDArray[np.uint32]:
    """The first words of the ChaCha20 keystream of a key, which is used once: without the key, they look uniform."""
    ciphers = require("cryptography.hazmat.primitives.ciphers", "privacy")
    encryptor = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    stream: NDArray[np.uint32] = np.frombuffer(encryptor.update(bytes(4 * words)), dtype="<u4")
    return stream
