"""What client and server of a secure sum agree on: the session, its public keys, and how many clients it needs."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from fedcmoo.messages import BadMessageError
from fedcmoo.privacy.secure.keys import PUBLIC, SIGNATURE, NodeKey, PublicNodeKey, is_signed, sign

Directory = Mapping[int, PublicNodeKey]
"""The public key of the node of every client of the federation, which all know from before the run."""


class SecureSumError(RuntimeError):
    """A secure sum that cannot be completed: too few clients answered, or shares were wrong."""


@dataclass(frozen=True)
class Session:
    """One secure sum.

    Args:
        id: bytes that no other sum has: made of the run, the round and the contribution.
        directory: who may take part.
        smallest: fewer clients than this never make a sum.
    """

    id: bytes
    directory: Directory
    smallest: int = 3

    def __post_init__(self) -> None:
        if self.smallest < 3:
            raise ValueError(f"a secure sum needs at least 3 clients to hide any, but smallest is {self.smallest}")

    def threshold(self, n: int) -> int:
        """How many of n clients must answer in every phase: more than two thirds.

        Fewer than that, colluding with the server, cannot recover a seed.
        """
        return max(self.smallest, 2 * n // 3 + 1)

    def check_count(self, count: int, n: int, phase: str) -> None:
        """Raise unless so many of n clients are enough."""
        least = self.threshold(n)
        if count < least:
            raise SecureSumError(
                f"a secure sum of {n} clients needs {least} of them in each phase, but {count} answered in {phase!r}; "
                "larger cohorts tolerate more failures"
            )


KEYS = 3 * PUBLIC + SIGNATURE
"""Bytes of a client's public keys."""


@dataclass(frozen=True)
class PublicKeys:
    """What a client publishes in a session.

    Attributes:
        encryption: others encrypt shares for the client with it.
        pair: masks that the client has in common with each other client are agreed with it.
        own: belongs to the seed of the client's own mask. Nothing is agreed with it; it lets the server check the seed
            that it puts together from shares.
        signature: by the client's node, of all this, the session and the client.
    """

    encryption: bytes
    pair: bytes
    own: bytes
    signature: bytes

    @classmethod
    def sign(cls, session: Session, i: int, keys: tuple[bytes, bytes, bytes], node: NodeKey) -> PublicKeys:
        """The keys of client i, signed."""
        return cls(*keys, signature=sign(_signed_bytes(session, i, *keys), node))

    def to_bytes(self) -> bytes:
        """The keys and their signature, one after the other."""
        return self.encryption + self.pair + self.own + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKeys:
        """Read what `to_bytes` wrote; `check` says whether that makes sense."""
        encryption, pair, own = (data[start : start + PUBLIC] for start in range(0, 3 * PUBLIC, PUBLIC))
        return cls(encryption, pair, own, signature=data[3 * PUBLIC :])

    def check(self, session: Session, i: int) -> None:
        """Raise `BadMessageError` unless client i's node signed these keys for this session."""
        lengths = [len(part) for part in (self.encryption, self.pair, self.own, self.signature)]
        if lengths != [PUBLIC, PUBLIC, PUBLIC, SIGNATURE]:
            raise BadMessageError(f"client {i}: keys must have 32, 32, 32 and 96 bytes, but have {lengths}")
        if i not in session.directory:
            raise BadMessageError(f"client {i} must be one of the federation's, but its node's key is not known")
        data = _signed_bytes(session, i, self.encryption, self.pair, self.own)
        if not is_signed(data, self.signature, session.directory[i]):
            raise BadMessageError(f"client {i}: the public keys must be signed by its node, but are not")


def _signed_bytes(session: Session, i: int, *keys: bytes) -> bytes:
    return b"".join((b"fedcmoo secure sum\0", struct.pack(">QQ", len(session.id), i), session.id, *keys))
