"""What goes over Flower's wire: one request to a node for each phase of a round, and its answer.

A request carries the ids of the clients it is for, the method's message and, unless the node already has it, the model
of the round. An answer carries one reply for each of these clients, or why there is none. Arrays travel in the
safetensors format inside Flower's arrays (which are content-addressed and cut to pieces, so that a model for n nodes
is uploaded once); Flower's own records hold the rest. Nothing is pickled.

Both sides trust nothing: whatever does not have the expected form raises `BadMessageError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcmoo.client import State
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.rounds import Sizes

VERSION = 1
"""Of this format; server and nodes must agree on it."""

T = TypeVar("T", int, str, bool)

HEADER = 2**20
"""Room in a message for names and shapes, in bytes."""


@dataclass(frozen=True)
class Request:
    """One phase of one round, for the clients of one node. The arrays that come with it are packed beside it.

    Attributes:
        token: names this request; the answer repeats it.
        model_token: names the model of the round, which a node keeps between phases.
        seed, round, phase, clients: as in `Worker.answer`.
    """

    token: str
    model_token: str
    seed: int
    round: int
    phase: str
    clients: tuple[int, ...]

    def pack(self, message: Array, model: Array | None) -> RecordDict:
        """The request as Flower sends it, with the method's message and, unless the node has it, the model."""
        about: dict[str, Any] = {
            "version": VERSION,
            "token": self.token,
            "model-token": self.model_token,
            "seed": self.seed,
            "round": self.round,
            "phase": self.phase,
            "clients": list(self.clients),
        }
        arrays = {"message": message} if model is None else {"message": message, "model": model}
        return RecordDict({"request": ConfigRecord(about), "arrays": ArrayRecord(arrays)})

    @classmethod
    def unpack(cls, content: RecordDict, sizes: Sizes) -> tuple[Request, Message, Message | None]:
        """Read and check what `pack` wrote; `sizes` is what this node knows of the model."""
        about = config(content, "request")
        check_version(about)
        request = cls(
            token=entry(about, "token", str),
            model_token=entry(about, "model-token", str),
            seed=entry(about, "seed", int),
            round=entry(about, "round", int),
            phase=entry(about, "phase", str),
            clients=_ids(about, "clients"),
        )
        arrays = _arrays(content)
        if "message" not in arrays:
            raise BadMessageError(f"a request must have the array 'message', but has {sorted(arrays)}")
        message = from_array(arrays["message"], largest_message(sizes))
        if "model" not in arrays:
            return request, message, None
        model = from_array(arrays["model"], sizes.model_bytes + HEADER)
        check(model, model_fields(sizes), "the server")
        return request, message, model


@dataclass
class Answer:
    """What a node says to a request: encoded replies by client, failures by client, or that it lacks the model."""

    token: str
    needs_model: bool = False
    replies: dict[int, Array] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def pack(self) -> RecordDict:
        """The answer as Flower sends it."""
        about: dict[str, Any] = {"token": self.token, "needs-model": self.needs_model}
        failures: dict[str, Any] = {str(i): reason for i, reason in self.failures.items()}
        return RecordDict(
            {
                "answer": ConfigRecord(about),
                "failures": ConfigRecord(failures),
                "arrays": ArrayRecord({f"client-{i}": array for i, array in self.replies.items()}),
            }
        )

    @classmethod
    def unpack(cls, content: RecordDict, request: Request) -> Answer:
        """Read an answer to `request`. Replies of other clients are left out; the payloads are not yet decoded."""
        about = config(content, "answer")
        token = entry(about, "token", str)
        if token != request.token:
            raise BadMessageError(f"an answer must repeat the request's token {request.token}, but has {token!r:.80}")
        reasons, arrays = config(content, "failures"), _arrays(content)
        failures = {i: str(reasons[str(i)])[:500] for i in request.clients if str(i) in reasons}
        replies = {i: arrays[f"client-{i}"] for i in request.clients if f"client-{i}" in arrays and i not in failures}
        return cls(token, entry(about, "needs-model", bool), replies, failures)


def to_array(message: Message) -> Array:
    """A message as one of Flower's arrays: bytes in the safetensors format."""
    data = message.encode()
    return Array(dtype="uint8", shape=(len(data),), stype="safetensors", data=data)


def from_array(array: Array, limit: int) -> Message:
    """Read what `to_array` made, if it has at most `limit` bytes."""
    if array.stype != "safetensors":
        raise BadMessageError(f"an array must be in the safetensors format, but is {array.stype!r:.40}")
    return Message.decode(array.data, limit)


def model_message(state: State) -> Message:
    """The model of a round, as it is sent."""
    return Message(x=state.x, buffers=state.buffers, counters=state.counters)


def model_fields(sizes: Sizes) -> dict[str, Field]:
    """What `model_message` must have."""
    return {
        "x": Field((sizes.d,), sizes.dtype),
        "buffers": Field((sizes.buffers,), sizes.dtype),
        "counters": Field((sizes.counters,), torch.int64),
    }


def largest_message(sizes: Sizes) -> int:
    """Bytes that no message of a method needs: four times M updates. (Three are a Jacobian with indices.)"""
    return 4 * sizes.M * sizes.model_bytes + HEADER


def clients_of(partition: int, partitions: int, N: int) -> tuple[int, ...]:
    """The clients that live on node `partition` of `partitions`: every so-manieth of the N.

    >>> clients_of(1, 3, 8)
    (1, 4, 7)
    """
    if not 0 <= partition < partitions:
        raise ValueError(f"partition-id must be from 0 to num-partitions - 1 ({partitions - 1}), but got {partition}")
    return tuple(range(partition, N, partitions))


def config(content: RecordDict, name: str) -> Mapping[str, Any]:
    """The named record of plain values."""
    record = content.get(name)
    if not isinstance(record, ConfigRecord):
        raise BadMessageError(f"a message must have the record {name!r}, but has {sorted(content)}")
    return record


def entry(record: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """One value of a record, of just this type."""
    value = record.get(name)
    if type(value) is not kind:
        raise BadMessageError(f"{name!r} must be of type {kind.__name__}, but is {value!r:.80}")
    return value


def check_version(record: Mapping[str, Any]) -> None:
    """Raise unless the other side speaks the same version of this format."""
    version = entry(record, "version", int)
    if version != VERSION:
        raise BadMessageError(f"version {VERSION} of the wire format is needed on all sides, but one speaks {version}")


def _ids(record: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = record.get(name)
    if not isinstance(value, list) or not all(type(i) is int and i >= 0 for i in value):
        raise BadMessageError(f"{name!r} must be a list of client numbers, but is {value!r:.80}")
    return tuple(value)


def _arrays(content: RecordDict) -> Mapping[str, Array]:
    record = content.get("arrays")
    if not isinstance(record, ArrayRecord):
        raise BadMessageError(f"a message must have the record 'arrays', but has {sorted(content)}")
    return record
