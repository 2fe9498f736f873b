"""A federation for tests of secure sums: real keys, and clients that fall silent before the phase of your choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcmoo.messages import Message
from fedcmoo.privacy.secure.client import SecureClient
from fedcmoo.privacy.secure.keys import NodeKey
from fedcmoo.privacy.secure.masks import Words
from fedcmoo.privacy.secure.protocol import PublicKeys, SumSession
from fedcmoo.privacy.secure.server import SecureServer

PHASES = ("advertise", "share", "mask", "unmask")


def node_keys(n: int) -> dict[int, NodeKey]:
    """A key pair for the node of each client."""
    return {i: NodeKey.generate() for i in range(n)}


def session_of(keys: Mapping[int, NodeKey], id: bytes = b"round 1") -> SumSession:
    """A session for these nodes."""
    return SumSession(id, 3, tuple(key.public_key().public_bytes_raw() for key in keys.values()))


def checked(session: SumSession, keys: Mapping[int, PublicKeys]) -> dict[int, PublicKeys]:
    """The keys that clients advertised, as the server takes them."""
    for i, its in keys.items():
        its.check(session, i)
    return dict(keys)


@dataclass
class Outcome:
    """What came of a secure sum: the total, who is in it, and what the server received of each client."""

    total: Words
    survivors: list[int]
    received: dict[int, bytes] = field(default_factory=dict)


def secure_sum(
    session: SumSession,
    nodes: Mapping[int, NodeKey],
    codes: Mapping[int, Words],
    bits: int,
    silent: Mapping[str, set[int]] | None = None,
) -> Outcome:
    """Run the four phases; clients in `silent` answer no more from the phase on under whose name they stand."""
    clients = {i: SecureClient(session, i, nodes[i]) for i in codes}

    def remaining(phase: str) -> list[int]:
        for i in (silent or {}).get(phase, set()):
            clients.pop(i)
        return list(clients)

    def restart() -> None:
        """Every client goes on from its saved state, as on a node with a new process for every phase."""
        for i, client in clients.items():
            clients[i] = SecureClient.load(session, i, nodes[i], Message.decode(client.save().encode()))

    keys = checked(session, {i: clients[i].advertise() for i in remaining("advertise")})
    server = SecureServer(session, keys, len(codes[0]), bits)
    restart()
    for i in remaining("share"):
        server.add_shares(i, clients[i].share(keys))
    restart()
    shares = server.shares()
    received = {i: clients[i].mask(codes[i], bits, shares[i]) for i in remaining("mask")}
    for i, packed in received.items():
        server.add_codes(i, packed)
    survivors = server.survivors()
    restart()
    for i in remaining("unmask"):
        server.add_revealed(i, clients[i].unmask(survivors))
    return Outcome(server.total(), survivors, received)


def random_codes(n: int, count: int, largest: int, seed: int = 0) -> dict[int, Words]:
    """Codes from 0 to `largest` of n clients."""
    random = np.random.default_rng(seed)
    return {i: random.integers(0, largest + 1, count, dtype=np.uint32) for i in range(n)}
