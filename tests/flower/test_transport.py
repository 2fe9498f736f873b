"""Flower's messages as a transport: what a node sends cannot end the run."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

pytest.importorskip("flwr")

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedcmoo.engines.remote.protocol import Packet
from fedcmoo.flower.transport import GridTransport, to_records


class HostileGrid:
    """Node 1 has uploaded an object that is no message; node 2 replies."""

    def push_messages(self, messages: Iterable[FlowerMessage]) -> list[str]:
        self.sent = {f"to-{message.metadata.dst_node_id}": message for message in messages}
        return list(self.sent)

    def pull_messages(self, message_ids: Iterable[str]) -> list[FlowerMessage]:
        (message_id,) = message_ids
        if message_id == "to-1":
            inflate_object_from_contents("id", {"id": b"garbage"})
        message = self.sent[message_id]
        message.metadata.__dict__["_message_id"] = message_id
        return [FlowerMessage(to_records(Packet({"token": "t"})), reply_to=message)]


def test_an_object_that_is_no_message_is_a_failure_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    grid: Grid = HostileGrid()  # type: ignore[assignment]
    until = time.monotonic() + 20
    exchange = GridTransport(grid).send("ask", dict.fromkeys((1, 2), Packet({"token": "t"})), until)
    answers = dict(exchange.answers(until))
    assert answers[2] == Packet({"token": "t"})
    assert str(answers[1]).startswith("its answer cannot be read: ")
