"""Masked integer codes: words that add up modulo 2^b, the masks that hide them, and their bytes on the wire."""

import numpy as np
from numpy.typing import NDArray

from fedcmoo.messages import BadMessageError
from fedcmoo.privacy.noise import keystream
from fedcmoo.privacy.secure.keys import agree, derive

Words = NDArray[np.uint32]
"""Words of b <= 32 bits. Sums of uint32 wrap modulo 2^32, and so modulo any 2^b."""

BLOCK = 2**16


def own_mask(seed: bytes, session: bytes, count: int) -> Words:
    """The mask that hides a client's codes even if its other masks become known."""
    return keystream(derive(seed, session, "own mask"), count)


def pair_mask(seed: bytes, peer: bytes, session: bytes, count: int) -> Words:
    """The common mask of two clients; the one with the smaller number adds it, the other subtracts it."""
    return keystream(agree(seed, peer, session, "pair mask"), count)


def pack(words: Words, bits: int) -> bytes:
    """Pack the lowest `bits` bits of each word without gaps, the highest first."""
    assert 1 <= bits <= 32, bits
    parts = []
    for start in range(0, len(words), BLOCK):
        octets = words[start : start + BLOCK].astype(">u4").view(np.uint8).reshape(-1, 4)
        parts.append(np.packbits(np.unpackbits(octets, axis=1)[:, 32 - bits :]).tobytes())
    return b"".join(parts)


def unpack(data: bytes, bits: int, count: int, sender: str) -> Words:
    """Unpack the words given to `pack`, reduced modulo 2^bits."""
    if len(data) != packed_bytes(bits, count):
        raise BadMessageError(
            f"{sender} must send {packed_bytes(bits, count):,} bytes of codes, but sent {len(data):,}"
        )
    octets = np.frombuffer(data, dtype=np.uint8)
    words = np.empty(count, dtype=np.uint32)
    for start in range(0, count, BLOCK):
        part = words[start : start + BLOCK]
        first = start * bits // 8  # BLOCK words fill whole bytes
        digits = np.unpackbits(octets[first : first + packed_bytes(bits, len(part))], count=len(part) * bits)
        padded = np.zeros((len(part), 32), dtype=np.uint8)
        padded[:, 32 - bits :] = digits.reshape(-1, bits)
        part[:] = np.packbits(padded, axis=1).view(">u4").ravel()
    return words


def packed_bytes(bits: int, count: int) -> int:
    """The size of the output of `pack`."""
    return -(-bits * count // 8)
