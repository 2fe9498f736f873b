"""What arrives over the wire is checked before anything uses it, on both sides."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcmoo.client import State
from fedcmoo.flower.wire import (
    Answer,
    Request,
    clients_of,
    from_array,
    largest_message,
    model_message,
    to_array,
)
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.rounds import Sizes

SIZES = Sizes(d=5, d_shared=4, M=2, buffers=3, counters=1)
STATE = State(torch.arange(5.0), torch.ones(3), torch.tensor([7]))
REQUEST = Request("run/0/train/1", "run/0", seed=3, round=0, phase="train", clients=(1, 4))


def test_a_request_arrives_as_it_was_sent() -> None:
    content = REQUEST.pack(to_array(Message(w=torch.tensor([0.25, 0.75]))), to_array(model_message(STATE)))
    request, message, model = Request.unpack(content, SIZES)
    assert request == REQUEST
    assert message["w"].tolist() == [0.25, 0.75]
    assert model is not None
    assert torch.equal(model["x"], STATE.x)
    assert torch.equal(model["counters"], STATE.counters)


def test_a_request_may_come_without_the_model() -> None:
    assert Request.unpack(REQUEST.pack(to_array(Message()), None), SIZES)[2] is None


@pytest.mark.parametrize(
    "model",
    [
        Message(x=torch.zeros(6), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=torch.full((5,), torch.nan), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=STATE.x, buffers=STATE.buffers),
        Message(x=STATE.x.double(), buffers=STATE.buffers, counters=STATE.counters),
        Message(x=torch.zeros(2**20), buffers=STATE.buffers, counters=STATE.counters),
    ],
    ids=["shape", "nan", "missing", "dtype", "size"],
)
def test_a_node_refuses_a_wrong_model(model: Message) -> None:
    with pytest.raises(BadMessageError):
        Request.unpack(REQUEST.pack(to_array(Message()), to_array(model)), SIZES)


def test_other_versions_are_refused() -> None:
    content = REQUEST.pack(to_array(Message()), None)
    content["request"] = ConfigRecord({**content.config_records["request"], "version": 2})
    with pytest.raises(BadMessageError, match="version 1"):
        Request.unpack(content, SIZES)


def test_an_answer_arrives_as_it_was_sent() -> None:
    answer = Answer(REQUEST.token, replies={1: to_array(Message(update=STATE.x))}, failures={4: "ill"})
    back = Answer.unpack(answer.pack(), REQUEST)
    assert back.failures == {4: "ill"}
    assert not back.needs_model
    assert torch.equal(from_array(back.replies[1], largest_message(SIZES))["update"], STATE.x)


def test_stale_answers_are_refused() -> None:
    old = Answer("run/0/train/0", replies={1: to_array(Message(update=STATE.x))})
    with pytest.raises(BadMessageError, match="token"):
        Answer.unpack(old.pack(), REQUEST)


def test_only_the_clients_that_were_asked_may_reply() -> None:
    reply = to_array(Message(update=STATE.x))
    answer = Answer.unpack(Answer(REQUEST.token, replies={1: reply, 2: reply}, failures={9: "?"}).pack(), REQUEST)
    assert set(answer.replies) == {1}
    assert answer.failures == {}


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"answer": ConfigRecord({"token": REQUEST.token})}),
        RecordDict({"answer": ConfigRecord({"token": 3, "needs-model": False})}),
        RecordDict({"answer": ArrayRecord({})}),
    ],
)
def test_answers_of_another_form_are_refused(content: RecordDict) -> None:
    with pytest.raises(BadMessageError):
        Answer.unpack(content, REQUEST)


def test_oversized_arrays_are_refused_before_they_are_decoded() -> None:
    limit = largest_message(SIZES)
    huge = Array(dtype="uint8", shape=(limit + 1,), stype="safetensors", data=bytes(limit + 1))
    with pytest.raises(BadMessageError, match="at most"):
        from_array(huge, limit)


def test_pickled_arrays_are_refused() -> None:
    with pytest.raises(BadMessageError, match="safetensors"):
        from_array(Array(np.zeros(3)), 1000)


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


def test_every_client_lives_on_one_node() -> None:
    homes = [clients_of(p, 3, 8) for p in range(3)]
    assert sorted(sum(homes, ())) == list(range(8))
    with pytest.raises(ValueError, match="partition-id must be from 0 to num-partitions - 1 \\(2\\), but got 3"):
        clients_of(3, 3, 8)
