"""The clients' side of secure sums in a worker or node: their answers on each trip."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fedcmoo.contributions import Channels
from fedcmoo.files import reading, write_json
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.privacy.secure.client import SecureClient
from fedcmoo.privacy.secure.codes import SumCode
from fedcmoo.privacy.secure.keys import NodeKey
from fedcmoo.privacy.secure.protocol import (
    ID,
    KEYS,
    SHARES,
    PublicKeys,
    SumSession,
    from_bytes,
    from_message,
    to_message,
)
from fedcmoo.privacy.secure.stage import Secure
from fedcmoo.randomness import generator
from fedcmoo.rounds import Sizes

SERVER = "the server"


class States(Protocol):
    """Storage of clients' secrets from one trip to the next: named arrays with a token."""

    def write(self, name: str, token: str, arrays: Mapping[str, Tensor]) -> None: ...

    def read(self, name: str, token: str) -> dict[str, Tensor] | None: ...

    def delete(self, name: str) -> None: ...


class InMemory:
    """States kept in the memory of this process."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, dict[str, Tensor]]] = {}

    def write(self, name: str, token: str, arrays: Mapping[str, Tensor]) -> None:
        self._kept[name] = (token, dict(arrays))

    def read(self, name: str, token: str) -> dict[str, Tensor] | None:
        known, arrays = self._kept.get(name, ("", {}))
        return arrays if known == token else None

    def delete(self, name: str) -> None:
        self._kept.pop(name, None)


class Peers:
    """The public keys of a federation's nodes, in a file of one of them.

    The node stores a key when it first sees it, so the server cannot replace it later.

    Args:
        folder: the folder of the node's files.
        nodes: the number of nodes; client i belongs to node i modulo this number.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.file, self.nodes = folder / f"peers-{nodes}.json", nodes

    def check(self, keys: Mapping[int, PublicKeys]) -> None:
        """Raise `BadMessageError` unless the node of each client has the key that it had first; store new ones. The
        signatures of the clients' keys were checked before."""
        known: dict[str, str] = {}
        if self.file.exists():
            with reading(self.file):
                known = json.loads(self.file.read_text())
        seen = dict(known)
        for i, its in keys.items():
            node, key = str(i % self.nodes), its.node.hex()
            if seen.setdefault(node, key) != key:
                raise BadMessageError(
                    f"client {i} must be one of the node with key {seen[node][:16]}…, but its keys are signed by "
                    f"{key[:16]}…; if node {node} was replaced, delete its entry in {self.file.name}"
                )
        if seen != known:
            write_json(self.file, seen)


class Party:
    """Clients that take part in secure sums.

    Args:
        secure: the settings, the same at all clients and the server.
        channels: of the method's contributions.
        sizes: of the model.
        node: the private key that signs for the clients; by default a new one.
        states: where their secrets are kept; by default in memory.
        peers: the known keys of other nodes; None if the settings name them, or all clients are in this process.
    """

    def __init__(
        self,
        secure: Secure,
        channels: Channels,
        sizes: Sizes,
        node: NodeKey | None = None,
        states: States | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.secure, self.channels, self.sizes = secure, channels, sizes
        self.node, self.states, self.peers = node or NodeKey.generate(), states or InMemory(), peers

    def reply(
        self, i: int, trip: str, message: Message, names: Sequence[str], compute: Callable[[], Message], seed: int
    ) -> Message:
        """Client i's reply to the server's message on one of the trips, "advertise", "share", "mask" or "unmask".

        `compute`, the client's reply to the ask itself for the contributions `names`, is called only on the trip
        "mask". The seed is that of the round, the same at all clients and the server.
        """
        id, message = message.take("session", Field((ID,), torch.uint8), SERVER)
        nodes = tuple(bytes.fromhex(key) for key in self.secure.nodes)
        session = SumSession(id.numpy().tobytes(), self.secure.smallest, nodes)
        name, token = f"secure-{i}", session.id.hex()
        if trip == "advertise":
            check(message, {}, SERVER)
            client = SecureClient(session, i, self.node)
            answer = Message(keys=from_bytes(client.advertise().to_bytes()))
        else:
            saved = self.states.read(name, token)
            if saved is None:
                raise BadMessageError(f"client {i} must have advertised keys in this secure sum, but has not")
            client = SecureClient.load(session, i, self.node, Message(**saved))
            self.states.delete(name)  # so that it is never used twice, whatever the server asks next
            answer = self._answer(client, trip, message, names, compute, seed)
        if trip != "unmask":
            self.states.write(name, token, client.save())
        return answer

    def _answer(
        self,
        client: SecureClient,
        trip: str,
        message: Message,
        names: Sequence[str],
        compute: Callable[[], Message],
        seed: int,
    ) -> Message:
        if trip == "share":
            keys = {j: PublicKeys.from_bytes(row) for j, row in from_message(message, KEYS, SERVER).items()}
            shares = client.share(keys)
            if self.peers is not None:
                self.peers.check(keys)
            return to_message(shares)
        if trip == "mask":
            shares = from_message(message, SHARES, SERVER)
            code = SumCode(self.secure, self.channels, names, self.sizes, client.n, seed)
            codes = code.encode(compute(), generator(seed, "round", *names, client.i))
            packed = client.mask(codes, self.secure.bits, shares)
            return Message(codes=from_bytes(packed))
        if trip == "unmask":
            check(message, {"survivors": Field((None,), torch.int64)}, SERVER)
            return to_message(client.unmask(message["survivors"].tolist()))
        raise BadMessageError(f"a trip of a secure sum must be advertise, share, mask or unmask, but is {trip!r:.40}")
