"""The assignment of clients to nodes.

Frameworks give nodes random ids, so every new node is asked once for its identity: it reports its clients and the sizes
of its model, which reveal early whether it was set up for the same problem, and signs with its key.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from fedcmoo.engines.remote.protocol import VERSION, Packet, clients_of, entry, read, read_share, written
from fedcmoo.engines.remote.store import is_signed
from fedcmoo.failures import bounded
from fedcmoo.messages import BadMessageError
from fedcmoo.ownership import Share
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

log = logging.getLogger(__name__)

POLL = 0.25
"""Seconds between two checks for new nodes."""

PATIENCE = 30.0
"""Seconds that an ask waits for nodes that are connected but have not yet reported their clients."""

Outcome = Packet | str
"""A node's answer, or the reason why there is none."""


class Exchange(Protocol):
    """Packets that were sent and whose answers arrive one by one."""

    def answers(self, until: float) -> Iterator[tuple[int, Outcome]]:
        """Yield nodes and their answers as they arrive, until there are no more or the (monotonic) time `until`."""


class Transport(Protocol):
    """A transport of packets to nodes and of their answers back. Kinds of packets are "hello" and "ask"."""

    def nodes(self) -> set[int]:
        """The ids of the nodes that are connected now."""

    def send(self, kind: str, packets: Mapping[int, Packet], until: float) -> Exchange:
        """Send each node its packet; answers after the (monotonic) time `until` are ignored."""


@dataclass(frozen=True)
class NodeInfo:
    """The identity of a node: its place among the nodes, its problem, its key, and its clients' shares."""

    partition: int
    partitions: int
    N: int
    objectives: str
    sizes: str
    key: str = ""
    shares: tuple[str, ...] = ()

    def pack(self, signature: str) -> Packet:
        """The answer to "hello", with a signature of `claim`."""
        return Packet({**written(self), "signature": signature})

    def claim(self, challenge: str) -> str:
        """The text that a node signs: its place, its clients' shares, and a text chosen by the server."""
        return f"{challenge}/{self.partition}/{self.partitions}/{','.join(self.shares)}"

    @classmethod
    def unpack(cls, packet: Packet, challenge: str) -> NodeInfo:
        """Read and check what `pack` wrote."""
        info = read(cls, packet.values)
        if not is_signed(info.key, info.claim(challenge), entry(packet.values, "signature", str)):
            raise BadMessageError("a node must sign the server's challenge with its key, but the signature is wrong")
        return info


def describe(problem: Problem, sizes: Sizes, partition: int = 0, partitions: int = 1, key: str = "") -> NodeInfo:
    """A node that is set up for a problem."""
    objectives = ", ".join(objective.name for objective in problem.objectives)
    text = " ".join(f"{name}={value}" for name, value in asdict(sizes).items())
    return NodeInfo(partition, partitions, problem.N, objectives, text, key)


class NodeRegistry:
    """The nodes of a federation, by the clients that they hold; `mismatch` is the reason to refuse one, or None."""

    def __init__(self, transport: Transport, problem: Problem, mismatch: Callable[[NodeInfo], str | None]) -> None:
        self.transport, self.problem, self.mismatch = transport, problem, mismatch
        self.N = problem.N
        self.shares: dict[int, Share] = {}
        self.refused: dict[int, str] = {}
        self._node_of: dict[int, int] = {}
        self._key_of: dict[int, str] = {}
        self._known: set[int] = set()
        self._silent: set[int] = set()
        self._challenge = secrets.token_hex(16)
        self._exchanges: list[Exchange] = []

    def wait_for_all(self, until: float) -> None:
        """Wait until there is a node for every client, or time is up."""
        self._refresh()
        while len(self._node_of) < self.N and time.monotonic() < until:
            time.sleep(POLL)
            self._refresh()

    def route(self, clients: tuple[int, ...]) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
        """The clients by node, and those that no node has, with the reason."""
        until = time.monotonic() + PATIENCE
        self._refresh()
        while self._silent and not self._node_of.keys() >= set(clients) and time.monotonic() < until:
            time.sleep(POLL)
            self._refresh()
        by_node: dict[int, tuple[int, ...]] = {}
        for i in clients:
            if i in self._node_of:
                by_node[self._node_of[i]] = (*by_node.get(self._node_of[i], ()), i)
        why = "its node is not connected"
        if self.refused:
            why += f" ({len(self.refused)} nodes were refused, the last one since {list(self.refused.values())[-1]})"
        return by_node, {i: why for i in clients if i not in self._node_of}

    def _refresh(self) -> None:
        """Forget nodes that are gone, ask new ones for their identity, and read the answers that have arrived."""
        online = self.transport.nodes()
        self._node_of = {i: node for i, node in self._node_of.items() if node in online}
        new = online - self._known
        self._known = online
        self._silent = (self._silent & online) | new
        if new:
            hello = Packet({"protocol": VERSION, "challenge": self._challenge})
            # A node may be busy with a request of an earlier server, so it gets a day to answer.
            a_day = time.monotonic() + 24 * 3600
            self._exchanges.append(self.transport.send("hello", dict.fromkeys(sorted(new), hello), a_day))
        for exchange in self._exchanges:
            for node, outcome in exchange.answers(time.monotonic()):
                self._silent.discard(node)
                try:
                    self._enter(node, outcome)
                except (BadMessageError, ValueError) as error:
                    self.refused[node] = bounded(str(error))
                    log.warning("node %d is refused: %s", node, self.refused[node])

    def _enter(self, node: int, outcome: Outcome) -> None:
        if isinstance(outcome, str):
            raise BadMessageError(outcome)
        info = NodeInfo.unpack(outcome, self._challenge)
        wrong = self.mismatch(info)
        if wrong is not None:
            raise BadMessageError(wrong)
        clients = clients_of(info.partition, info.partitions, self.N)
        taken = [i for i in clients if self._key_of.get(i, info.key) != info.key]
        if taken:
            raise BadMessageError(
                f"client {taken[0]} belongs to the node with key {self._key_of[taken[0]][:16]}…, "
                f"but a node with key {info.key[:16]}… claims it"
            )
        shares = [read_share(text, self.problem.M) for text in info.shares]
        if len(shares) != len(clients):
            raise BadMessageError(
                f"a node must say what each of its {len(clients)} clients owns, but has {len(shares)}"
            )
        for i, share in zip(clients, shares, strict=True):
            contradiction = self.problem.contradiction(i, share)
            if contradiction is not None:
                raise BadMessageError(contradiction)
        self.shares |= dict(zip(clients, shares, strict=True))
        self._key_of |= dict.fromkeys(clients, info.key)
        # A node that returns under a new id keeps its clients.
        self._node_of |= dict.fromkeys(clients, node)
