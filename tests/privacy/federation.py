"""A federation for tests of secure sums: real keys, and clients that fall silent before the phase of your choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from fedcmoo.messages import Message
from fedcmoo.privacy.secure import SecureClient, SecureServer, Session
from fedcmoo.privacy.secure.masks import Words

PHASES = ("advertise", "share", "mask", "unmask")


def node_keys(n: int) -> dict[int, ec.EllipticCurvePrivateKey]:
    """A key pair for the node of each client."""
    return {i: ec.generate_private_key(ec.SECP384R1()) for i in range(n)}


def session_of(keys: Mapping[int, ec.EllipticCurvePrivateKey], id: bytes = b"round 1") -> Session:
    """A session for these nodes."""
    return Session(id, {i: key.public_key() for i, key in keys.items()})


@dataclass
class Outcome:
    """What came of a secure sum: the total, who is in it, and what the server received of each client."""

    total: Words
    survivors: list[int]
    received: dict[int, bytes] = field(default_factory=dict)


def secure_sum(
    session: Session,
    nodes: Mapping[int, ec.EllipticCurvePrivateKey],
    codes: Mapping[int, Words],
    bits: int,
    silent: Mapping[str, set[int]] | None = None,
) -> Outcome:
    """Run the four phases; clients in `silent` answer no more from the phase on under whose name they stand."""
    server = SecureServer(session, len(codes[0]), bits)
    clients = {i: SecureClient(session, i, nodes[i]) for i in codes}

    def remaining(phase: str) -> list[int]:
        for i in (silent or {}).get(phase, set()):
            clients.pop(i)
        return list(clients)

    def restart() -> None:
        """Every client goes on from its saved state, as on a node with a new process for every phase."""
        for i, client in clients.items():
            saved = {name: Message.decode(part.encode()) for name, part in client.save().items()}
            clients[i] = SecureClient.load(session, i, nodes[i], saved)

    for i in remaining("advertise"):
        server.add_keys(i, clients[i].advertise())
    keys = server.keys()
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
