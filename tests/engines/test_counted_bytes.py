"""Traffic in a run's history is the number of bytes that a transport carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from campaign.loopback import Loopback, LoopbackExchange
from fedcmoo import FSMGDA, FedCMOO, fit
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.nodes import Outcome
from fedcmoo.engines.remote.protocol import Packet
from fedcmoo.methods import Method
from tests.core.problems import classification

N = 8


class Counting(Loopback):
    """Counts the bytes of messages, model and replies; the rest of a packet names clients and rounds."""

    down = up = 0

    def send(self, kind: str, packets: Mapping[int, Packet], until: float) -> LoopbackExchange:
        self.down += sum(len(blob) for packet in packets.values() for blob in packet.blobs.values())
        exchange, answers = super().send(kind, packets, until), LoopbackExchange.answers

        def counted(until: float) -> Iterator[tuple[int, Outcome]]:
            for node, answer in answers(exchange, until):
                if isinstance(answer, Packet):
                    self.up += sum(map(len, answer.blobs.values()))
                yield node, answer

        exchange.answers = counted  # type: ignore[method-assign]
        return exchange


@pytest.mark.parametrize("method", [FedCMOO(), FedCMOO(trips=1), FSMGDA(), FedCMOO().within(4.0)])
def test_bytes_are_counted_as_sent(method: Method, tmp_path: Path) -> None:
    transport = Counting(tmp_path, classification(), method, nodes=N)
    result = fit(classification(), method, 3, engine=Remote(transport))
    assert result.uploaded == transport.up > 0
    assert result.downloaded == transport.down > 0
