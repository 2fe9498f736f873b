"""What arrives from other machines is checked before anything uses it, on both sides."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcmoo.download import Download, send
from fedcmoo.engines.remote.protocol import (
    Answer,
    NodeRequest,
    Packet,
    clients_of,
    largest_message,
)
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.parameters import State
from fedcmoo.rounds import Sizes

SIZES = Sizes(d=5, d_shared=4, M=2, buffers=3, counters=1)
STATE = State(torch.arange(5.0), torch.ones(3), torch.tensor([7]))
DIGEST = "0" * 32
REQUEST = NodeRequest("1/0/train/1", "run", 3, 0, STATE.version, ("train", "losses"), (1, 4), ("", DIGEST), (DIGEST,))


def test_a_request_arrives_as_it_was_sent() -> None:
    messages = Message.join({"train": Message(w=torch.tensor([0.25, 0.75]))}).encode()
    packet = REQUEST.pack(messages, send(STATE, "full").message.encode())
    request, received, model = NodeRequest.unpack(packet, SIZES)
    assert request == REQUEST
    assert received["train"]["w"].tolist() == [0.25, 0.75]
    assert len(received["losses"]) == 0
    assert model is not None
    assert model.version == STATE.version


@pytest.mark.parametrize("download", ["bfloat16", "8-bit"])
def test_a_node_and_the_server_have_the_same_model_in_fewer_bits(download: Download) -> None:
    sent = send(STATE, download, 3, 0)
    _, _, model = NodeRequest.unpack(REQUEST.pack(Message().encode(), sent.message.encode()), SIZES)
    assert model is not None
    assert model.version == sent.state.version


def test_a_request_may_come_without_the_model() -> None:
    assert NodeRequest.unpack(REQUEST.pack(Message().encode(), None), SIZES)[2] is None


@pytest.mark.parametrize(
    "model",
    [
        Message(x=torch.zeros(6), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=torch.full((5,), torch.nan), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=STATE.x, buffers=STATE.buffers),
        Message(code=torch.zeros(1, 4, dtype=torch.uint8), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=STATE.x.double(), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=torch.zeros(2**20), buffers=STATE.buffers, counters=STATE.counters),
    ],
    ids=["shape", "nan", "missing", "code", "dtype", "size"],
)
def test_a_node_refuses_a_wrong_model(model: Message) -> None:
    with pytest.raises(BadMessageError):
        NodeRequest.unpack(REQUEST.pack(Message().encode(), model.encode()), SIZES)


@pytest.mark.parametrize(
    "values",
    [{"protocol": 1}, {"clients": [1, "4"]}, {"memories": [""]}, {"round": True}, {"names": "train"}],
    ids=["protocol", "clients", "memories", "round", "names"],
)
def test_a_node_refuses_a_request_of_another_form(values: dict[str, object]) -> None:
    good = REQUEST.pack(Message().encode(), None)
    with pytest.raises(BadMessageError):
        NodeRequest.unpack(replace(good, values={**good.values, **values}), SIZES)  # type: ignore[dict-item]


def test_an_answer_arrives_as_it_was_sent() -> None:
    reply = Message(update=STATE.x).encode()
    answer = Answer(REQUEST.token, replies={1: reply}, failures={4: "ill"}, memories={1: DIGEST})
    back = Answer.unpack(answer.pack(), REQUEST)
    assert back.failures == {4: "ill"}
    assert back.memories == {1: DIGEST}
    assert not back.needs_model
    assert torch.equal(Message.decode(back.replies[1])["update"], STATE.x)


def test_stale_answers_are_refused() -> None:
    with pytest.raises(BadMessageError, match="token"):
        Answer.unpack(Answer("1/0/train/0", replies={1: b""}).pack(), REQUEST)


def test_only_the_clients_that_were_asked_may_reply() -> None:
    answer = Answer.unpack(Answer(REQUEST.token, replies={1: b"", 2: b""}, failures={9: "?"}).pack(), REQUEST)
    assert set(answer.replies) == {1}
    assert answer.failures == {}


@pytest.mark.parametrize(
    "packet",
    [
        Packet({}),
        Packet({"token": REQUEST.token}),
        Packet({"token": 3, "needs_model": False}),
        Packet({"token": REQUEST.token, "needs_model": False, "memory-1": "../../x"}, {"client-1": b""}),
    ],
)
def test_answers_of_another_form_are_refused(packet: Packet) -> None:
    with pytest.raises(BadMessageError):
        Answer.unpack(packet, REQUEST)


def test_oversized_messages_are_refused_before_they_are_decoded() -> None:
    limit = largest_message(SIZES)
    with pytest.raises(BadMessageError, match="at most"):
        Message.decode(bytes(limit + 1), limit)


def test_any_bytes_are_a_message_or_refused() -> None:
    """Flipped bits, cut ends and odd names never raise anything but `BadMessageError`."""
    rng = np.random.default_rng(0)
    good = Message(**{"update": STATE.x, "self": STATE.buffers, "": STATE.counters}).encode()
    assert set(Message.decode(good)) == {"update", "self", ""}
    for _ in range(2000):
        data = bytearray(good[: rng.integers(1, len(good) + 1)])
        for at in rng.integers(0, len(data), size=rng.integers(0, 4)):
            data[at] = rng.integers(256)
        with contextlib.suppress(BadMessageError):
            Message.decode(bytes(data))


def test_every_client_is_on_one_node() -> None:
    homes = [clients_of(p, 3, 8) for p in range(3)]
    assert sorted(sum(homes, ())) == list(range(8))
    with pytest.raises(ValueError, match="partition-id must be from 0 to num-partitions - 1 \\(2\\), but got 3"):
        clients_of(3, 3, 8)
