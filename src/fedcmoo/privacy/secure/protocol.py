"""What client and server of a secure sum agree on: the session, its public keys, and how many clients it needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fedcmoo.failures import TooFewRepliesError
from fedcmoo.messages import BadMessageError
from fedcmoo.privacy.secure.keys import PUBLIC, SIGNATURE, TAG, NodeKey, is_signed
from fedcmoo.privacy.secure.sharing import SHARE

ID = 16
"""Bytes of a session's id."""


class SecureSumError(TooFewRepliesError):
    """A secure sum that cannot be completed: too few clients answered, or shares were wrong."""


@dataclass(frozen=True)
class Session:
    """One secure sum.

    Args:
        id: bytes that no other sum has.
        smallest: fewer clients than this never make a sum.
        nodes: the public keys of all nodes; client i is of node i modulo their number. None of them for any client,
            with the key that its node claims to have.
    """

    id: bytes
    smallest: int
    nodes: tuple[bytes, ...] = ()

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


KEYS = 4 * PUBLIC + SIGNATURE
"""Bytes of a client's public keys."""

ENCRYPTED = 2 * SHARE + TAG
"""Bytes of two shares that are encrypted."""


@dataclass(frozen=True)
class PublicKeys:
    """What a client publishes in a session.

    Attributes:
        encryption: others encrypt shares for the client with it.
        pair: masks that the client has in common with each other client are agreed with it.
        own: belongs to the seed of the client's own mask. Nothing is agreed with it; it lets the server check the seed
            that it puts together from shares.
        node: the public key of the client's node.
        signature: by the node, of all this, the session and the client.
    """

    encryption: bytes
    pair: bytes
    own: bytes
    node: bytes
    signature: bytes

    @classmethod
    def sign(cls, session: Session, i: int, keys: tuple[bytes, bytes, bytes], node: NodeKey) -> PublicKeys:
        """The keys of client i, signed."""
        public = node.public_key().public_bytes_raw()
        return cls(*keys, public, signature=node.sign(_signed_bytes(session, i, *keys, public)))

    def to_bytes(self) -> bytes:
        """The keys and their signature, one after the other."""
        return self.encryption + self.pair + self.own + self.node + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKeys:
        """Read what `to_bytes` wrote; `check` says whether that makes sense."""
        encryption, pair, own, node = (data[start : start + PUBLIC] for start in range(0, 4 * PUBLIC, PUBLIC))
        return cls(encryption, pair, own, node, signature=data[4 * PUBLIC :])

    def check(self, session: Session, i: int) -> None:
        """Raise `BadMessageError` unless client i's node signed these keys for this session."""
        lengths = [len(part) for part in (self.encryption, self.pair, self.own, self.node, self.signature)]
        if lengths != [PUBLIC, PUBLIC, PUBLIC, PUBLIC, SIGNATURE]:
            raise BadMessageError(f"client {i}: keys must have 32, 32, 32, 32 and 64 bytes, but have {lengths}")
        if session.nodes and session.nodes[i % len(session.nodes)] != self.node:
            raise BadMessageError(f"client {i} must be one of a known node, but its node's key is not the known one")
        data = _signed_bytes(session, i, self.encryption, self.pair, self.own, self.node)
        if not is_signed(self.node, data, self.signature):
            raise BadMessageError(f"client {i}: the public keys must be signed by its node, but are not")


def _signed_bytes(session: Session, i: int, *keys: bytes) -> bytes:
    return b"".join((b"fedcmoo secure sum\0", struct.pack(">QQ", len(session.id), i), session.id, *keys))
