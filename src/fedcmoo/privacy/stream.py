"""Keystreams: any number of random words from a key of 32 bytes that is used once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcmoo.optional import require

KEY = 32
"""Bytes of a key."""


def keystream(key: bytes, words: int) -> NDArray[np.uint32]:
    """The first words of the ChaCha20 keystream of a key: without the key, they look uniform."""
    ciphers = require("cryptography.hazmat.primitives.ciphers", "privacy")
    encryptor = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    stream: NDArray[np.uint32] = np.frombuffer(encryptor.update(bytes(4 * words)), dtype="<u4")
    return stream
