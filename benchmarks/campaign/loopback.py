"""A transport without a network: nodes in this process, each with its own folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedcmoo.contributions import Stage
from fedcmoo.engines.remote.node import Node
from fedcmoo.engines.remote.nodes import Outcome
from fedcmoo.engines.remote.protocol import Packet
from fedcmoo.methods import Method
from fedcmoo.problem import Problem


class Loopback:
    """Nodes that are created anew for every packet, as in frameworks that start a process for each message."""

    def __init__(
        self, folder: Path, problem: Problem, method: Method, nodes: int = 2, stages: Sequence[Stage] = ()
    ) -> None:
        self.folder, self.problem, self.channels = folder, problem, method.channels(stages)
        self.partition = {node: node for node in range(nodes)}
        self.partitions = nodes
        self.sent: list[tuple[int, Packet]] = []

    def nodes(self) -> set[int]:
        return set(self.partition)

    def send(self, kind: str, packets: Mapping[int, Packet], until: float) -> LoopbackExchange:
        self.sent += packets.items()
        return LoopbackExchange(self, kind, packets)

    def node(self, node: int) -> Node:
        home = self.folder / f"node-{node}"
        home.mkdir(parents=True, exist_ok=True)
        return Node(self.problem, self.channels, self.partition[node], self.partitions, f"run-{node}", home)


class LoopbackExchange:
    """Answers in reverse order of the nodes, so that they do not arrive in client order."""

    def __init__(self, transport: Loopback, kind: str, packets: Mapping[int, Packet]) -> None:
        self.transport, self.kind = transport, kind
        self.left = sorted(packets.items(), reverse=True)

    def answers(self, until: float) -> Iterator[tuple[int, Outcome]]:
        while self.left:
            node, packet = self.left.pop(0)
            yield node, self.transport.node(node).handle(self.kind, packet)
