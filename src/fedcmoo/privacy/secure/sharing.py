"""Shares of a seed: any `threshold` of them give it back, fewer say nothing about it (Shamir 1979)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from Crypto.Protocol.SecretSharing import Shamir

SHARE = 16
"""Bytes of a share."""


def split(seed: bytes, clients: Sequence[int], threshold: int) -> dict[int, bytes]:
    """A share of the seed for each client."""
    shares = Shamir.split(threshold, len(clients), seed, ssss=False)
    return {i: share for i, (_, share) in zip(sorted(clients), shares, strict=True)}


def combine(shares: Mapping[int, bytes], clients: Sequence[int], threshold: int) -> bytes:
    """The seed, from the shares of at least `threshold` of the clients that `split` was given."""
    position = {i: p for p, i in enumerate(sorted(clients), start=1)}
    return Shamir.combine([(position[i], share) for i, share in islice(sorted(shares.items()), threshold)], ssss=False)
