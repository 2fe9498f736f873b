"""The common part of client and server in a secure sum: the session and its threshold, public keys, and tables.

A table has a row of bytes for each client; it is the format of keys, shares and clients' states in messages.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.failures import TooFewRepliesError
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.privacy.secure.keys import PUBLIC, SIGNATURE, TAG, NodeKey, is_signed
from fedcmoo.privacy.secure.sharing import SHARE

ID = 16
"""Bytes of a session's id."""


class SecureSumError(TooFewRepliesError):
    """A secure sum cannot be completed: too few clients answered, or shares were wrong."""


@dataclass(frozen=True)
class SumSession:
    """One secure sum.

    Args:
        id: bytes that are unique to this sum.
        smallest: the minimum number of clients in a sum.
        nodes: the public keys of all nodes; client i belongs to node i modulo their number. If empty, any client is
            accepted, with the key that its node claims.
    """

    id: bytes
    smallest: int
    nodes: tuple[bytes, ...] = ()

    def threshold(self, n: int) -> int:
        """The number of n clients that must answer in every phase: more than two thirds.

        Fewer than that, colluding with the server, cannot recover a seed.
        """
        return max(self.smallest, 2 * n // 3 + 1)

    def check_count(self, count: int, n: int, phase: str) -> None:
        """Raise unless this many of n clients are enough."""
        least = self.threshold(n)
        if count < least:
            raise SecureSumError(
                f"a secure sum of {n} clients needs {least} of them in each phase, but {count} answered in {phase!r}; "
                "larger cohorts tolerate more failures"
            )


KEYS = 4 * PUBLIC + SIGNATURE
"""Bytes of a client's public keys."""

SHARES = 2 * SHARE + TAG
"""The size in bytes of two encrypted shares."""


@dataclass(frozen=True)
class PublicKeys:
    """The public keys of a client in a session.

    Attributes:
        encryption: the key with which others encrypt shares for the client.
        pair: the key for agreeing on the common masks with each other client.
        own: the public key of the seed of the client's own mask, with which the server checks the seed that it recovers
            from shares.
        node: the public key of the client's node.
        signature: the node's signature of all these keys, the session and the client.
    """

    encryption: bytes
    pair: bytes
    own: bytes
    node: bytes
    signature: bytes

    @classmethod
    def sign(cls, session: SumSession, i: int, keys: tuple[bytes, bytes, bytes], node: NodeKey) -> PublicKeys:
        """The keys of client i, signed."""
        public = node.public_key().public_bytes_raw()
        return cls(*keys, public, signature=node.sign(_signed_bytes(session, i, *keys, public)))

    def to_bytes(self) -> bytes:
        """The keys and their signature, one after the other."""
        return self.encryption + self.pair + self.own + self.node + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKeys:
        """Read what `to_bytes` wrote; `check` validates it."""
        encryption, pair, own, node = (data[start : start + PUBLIC] for start in range(0, 4 * PUBLIC, PUBLIC))
        return cls(encryption, pair, own, node, signature=data[4 * PUBLIC :])

    def check(self, session: SumSession, i: int) -> None:
        """Raise `BadMessageError` unless client i's node signed these keys for this session."""
        lengths = [len(part) for part in (self.encryption, self.pair, self.own, self.node, self.signature)]
        if lengths != [PUBLIC, PUBLIC, PUBLIC, PUBLIC, SIGNATURE]:
            raise BadMessageError(f"client {i}: keys must have 32, 32, 32, 32 and 64 bytes, but have {lengths}")
        if session.nodes and session.nodes[i % len(session.nodes)] != self.node:
            raise BadMessageError(f"client {i} must be one of a known node, but its node's key is not the known one")
        data = _signed_bytes(session, i, self.encryption, self.pair, self.own, self.node)
        if not is_signed(self.node, data, self.signature):
            raise BadMessageError(f"client {i}: the public keys must be signed by its node, but are not")


def _signed_bytes(session: SumSession, i: int, *keys: bytes) -> bytes:
    return b"".join((b"fedcmoo secure sum\0", struct.pack(">QQ", len(session.id), i), session.id, *keys))


def from_bytes(data: bytes) -> Tensor:
    """Convert bytes to the array that is sent, uint8 [n]."""
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8))


def to_message(rows: Mapping[int, bytes]) -> Message:
    """Convert rows of equal length, by client, to a message.

    >>> from_message(to_message({3: b"ab", 1: b"cd"}), length=2, sender="the server")
    {1: b'cd', 3: b'ab'}
    """
    clients = sorted(rows)
    data = from_bytes(b"".join(rows[i] for i in clients))
    table = data.reshape(len(clients), -1) if clients else data.reshape(0, 0)
    return Message(clients=torch.tensor(clients, dtype=torch.int64), rows=table)


def from_message(message: Message, length: int, sender: str) -> dict[int, bytes]:
    """Convert a message back to the rows given to `to_message`, if they have this length."""
    check(message, {"clients": Field((None,), torch.int64), "rows": Field((None, None), torch.uint8)}, sender)
    clients, rows = message["clients"].tolist(), message["rows"]
    if rows.shape != (len(clients), length if clients else 0):
        expected = (len(clients), length)
        raise BadMessageError(f"{sender}: 'rows' must have shape {expected}, but has {tuple(rows.shape)}")
    if clients != sorted(set(clients)) or (clients and clients[0] < 0):
        raise BadMessageError(f"{sender}: 'clients' must be different numbers from 0 in ascending order")
    return {i: row.tobytes() for i, row in zip(clients, rows.numpy(), strict=True)}
