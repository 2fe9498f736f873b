"""Flower as a transport: packets are sent as Flower's messages.

Values are in a ConfigRecord, bytes in an ArrayRecord: its arrays are content-addressed and split into chunks, so that a
model for n nodes is uploaded once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from fedcmoo.engines.remote.nodes import Outcome
from fedcmoo.engines.remote.protocol import Packet
from fedcmoo.messages import BadMessageError

KINDS = {"hello": "query.hello", "ask": "train.ask"}
"""Flower's message types by the kind of packet."""

POLL = 0.2
POLL_PER_NODE = 0.001
"""Seconds between two checks for an answer, and the increase for each node, so as not to flood the SuperLink."""


def to_records(packet: Packet, arrays: dict[int, Array] | None = None) -> RecordDict:
    """Convert a packet to Flower's records. `arrays` holds byte arrays shared between packets, by their id."""
    known = {} if arrays is None else arrays
    for data in packet.blobs.values():
        if id(data) not in known:
            known[id(data)] = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    blobs = ArrayRecord({name: known[id(data)] for name, data in packet.blobs.items()})
    values: dict[str, Any] = dict(packet.values)
    return RecordDict({"values": ConfigRecord(values), "blobs": blobs})


def from_records(content: RecordDict) -> Packet:
    """Read what `to_records` made."""
    values, blobs = content.get("values"), content.get("blobs")
    if not isinstance(values, ConfigRecord) or not isinstance(blobs, ArrayRecord):
        raise BadMessageError(f"a message must have the records 'values' and 'blobs', but has {sorted(content)}")
    for name, array in blobs.items():
        if array.stype != "bytes":
            raise BadMessageError(f"{name!r:.80} must be plain bytes, but is {array.stype!r:.40}")
    return Packet(dict(values), {name: array.data for name, array in blobs.items()})  # type: ignore[arg-type]


@dataclass(frozen=True)
class GridTransport:
    """Transport to nodes through the grid that Flower gives a server app."""

    grid: Grid

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(self, kind: str, packets: Mapping[int, Packet], until: float) -> GridExchange:
        return GridExchange(self.grid, kind, packets, until)


class GridExchange:
    """Messages to nodes. A thread for each waits for its answer: a node that dies in the middle of an upload, or stalls
    on purpose, does not delay others."""

    def __init__(self, grid: Grid, kind: str, packets: Mapping[int, Packet], until: float) -> None:
        self._grid = grid
        self._left = set(packets)
        self._arrived: queue.Queue[tuple[int, FlowerMessage | Exception | None]] = queue.Queue()
        ttl = max(1.0, until - time.monotonic())
        poll = POLL + POLL_PER_NODE * len(packets)
        arrays: dict[int, Array] = {}
        messages = [FlowerMessage(to_records(p, arrays), node, KINDS[kind], ttl=ttl) for node, p in packets.items()]
        for node, message_id in zip(packets, grid.push_messages(messages), strict=True):
            if message_id is None:
                self._arrived.put((node, None))
            else:
                threading.Thread(target=self._wait, args=(node, message_id, until, poll), daemon=True).start()

    def answers(self, until: float) -> Iterator[tuple[int, Outcome]]:
        while self._left:
            try:
                node, message = self._arrived.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return
            self._left.discard(node)
            yield node, _outcome(message)

    def _wait(self, node: int, message_id: str, until: float, poll: float) -> None:
        try:
            while time.monotonic() < until:
                for message in self._grid.pull_messages([message_id]):
                    if message.metadata.reply_to_message_id == message_id:
                        self._arrived.put((node, message))
                        return
                time.sleep(poll)
        except Exception as error:  # which of them Flower raises for invalid bytes is not documented
            self._arrived.put((node, error))


def _outcome(message: FlowerMessage | Exception | None) -> Outcome:
    if message is None:
        return "the SuperLink did not take the message: the node is not connected"
    if isinstance(message, Exception):
        return f"its answer cannot be read: {type(message).__name__}: {message}"
    if message.has_error():
        return str(message.error.reason)
    try:
        return from_records(message.content)
    except BadMessageError as error:
        return str(error)
