"""Secret sharing of seeds: any `threshold` shares recover a seed, fewer reveal nothing about it.

A seed is 8 words of 16 bits. Each word is the constant term of a polynomial over GF(2^16) whose other coefficients come
from the operating system's randomness; the share of the p-th client is the polynomials' values at p (Shamir). Sums in
the field are bitwise differences, and products are sums of logarithms, so many seeds are recovered at once.

References:
    Shamir. How to share a secret. Communications of the ACM, 1979.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

SHARE = 16
"""The number of bytes of a share, the same as of a seed."""

ORDER = 2**16 - 1
"""The order of the field's multiplicative group, and the largest number of clients."""

POLYNOMIAL = 0x1100B
"""x^16 + x^12 + x^3 + x + 1, of which x is a primitive root."""

Elements = NDArray[np.uint16]
"""Elements of GF(2^16)."""


def split(seed: bytes, clients: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Split a seed into a share for each client."""
    if not 1 <= threshold <= len(clients) <= ORDER:
        raise ValueError(f"threshold must be from 1 to {len(clients)}, the clients, at most {ORDER}; got {threshold}")
    coefficients = _field(secrets.token_bytes((threshold - 1) * SHARE) + seed).reshape(threshold, -1)
    points = np.arange(1, len(clients) + 1, dtype=np.uint16)[:, None]
    values = np.zeros((len(clients), coefficients.shape[1]), dtype=np.uint16)
    for row in coefficients:  # Horner's rule; the seed is the last row
        values = multiply(values, points) ^ row
    return {i: value.astype("<u2").tobytes() for i, value in zip(sorted(clients), values, strict=True)}


def combine(shares: Mapping[int, Mapping[int, bytes]], clients: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Recover the seeds of several owners from the shares that at least `threshold` clients hold of each.

    Args:
        shares: by the client that holds them, its shares by owner; every holder has one of every owner.
        clients: the clients among which the seeds were split.
        threshold: the number of shares that recover a seed.
    """
    position = {i: p for p, i in enumerate(sorted(clients), start=1)}
    holders = sorted(shares)[:threshold]
    owners = sorted(shares[holders[0]])
    table = np.stack([np.stack([_field(shares[j][i]) for i in owners]) for j in holders])  # [threshold, owners, 8]
    weights = _at_zero(np.array([position[j] for j in holders], dtype=np.uint16))
    seeds = np.bitwise_xor.reduce(multiply(table, weights[:, None, None]), axis=0)
    return {i: seed.astype("<u2").tobytes() for i, seed in zip(owners, seeds, strict=True)}


def multiply(a: Elements, b: Elements) -> Elements:
    """Products in the field, with broadcasting.

    >>> multiply(np.array([2], dtype=np.uint16), np.array([2**15], dtype=np.uint16)).tolist()  # x x^15 = x^16
    [4107]
    """
    powers, logarithms = _tables()
    product = powers[logarithms[a].astype(np.int64) + logarithms[b]]
    return np.where((a == 0) | (b == 0), np.uint16(0), product)


def _at_zero(points: Elements) -> Elements:
    """λ_j = Π_{m ≠ j} p_m / (p_m - p_j), with which Σ_j λ_j f(p_j) = f(0)."""
    powers, logarithms = _tables()
    logs = logarithms[points].astype(np.int64)
    others = ~np.eye(len(points), dtype=bool)
    differences = logarithms[points[:, None] ^ points[None, :]].astype(np.int64)
    exponents = ((logs[None, :] - differences) * others).sum(axis=1) % ORDER
    weights: Elements = powers[exponents]
    return weights


def _field(data: bytes) -> Elements:
    return np.frombuffer(data, dtype="<u2").astype(np.uint16)


@cache
def _tables() -> tuple[Elements, Elements]:
    """The powers of x, for two cycles, and the logarithms of all elements; that of 0 has no meaning."""
    powers, element = np.empty(2 * ORDER, dtype=np.uint16), 1
    for k in range(ORDER):
        powers[k] = powers[k + ORDER] = element
        element <<= 1
        if element > ORDER:
            element ^= POLYNOMIAL
    logarithms = np.zeros(ORDER + 1, dtype=np.uint16)
    logarithms[powers[:ORDER]] = np.arange(ORDER, dtype=np.uint16)
    return powers, logarithms
