"""The messages between server and nodes: one request to a node for each ask, and its answer.

A request carries the ids of the clients it is for, the messages to their contributions and, unless the node has it, the
model. An answer carries one reply for each of these clients, or the reason why there is none. Arrays are in the
format of `fedcmoo.wire`; nothing is pickled. Both sides check what they receive: anything but the expected form raises
`BadMessageError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_type_hints

import torch

from fedcmoo.download import receive
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.ownership import Share
from fedcmoo.parameters import State
from fedcmoo.rounds import Sizes

VERSION = 6
"""The version of this protocol, which must be the same on server and nodes."""

HEADER = 2**17
"""The maximum size of names and shapes in a message, in bytes."""

CLIENT_BYTES = 512
"""The maximum size of public keys and shares in a message, in bytes per client of the federation."""

Value = int | str | bool | list[int] | list[str]
T = TypeVar("T", int, str, bool)
R = TypeVar("R")


@dataclass(frozen=True)
class Packet:
    """The unit that a transport carries: plain values, and named bytes."""

    values: Mapping[str, Value]
    blobs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeRequest:
    """One ask for the clients of one node.

    Attributes:
        token: identifies this request; the answer repeats it.
        run: identifies the run, even after it is resumed.
        seed, round: of the run.
        version: of the model.
        names: the requested contributions; none on a trip without computation.
        clients: the clients that are asked.
        memories: for each of the clients the digest of its memory, "" for none.
        keep: digests of further memories of these clients that the server may come back to.
        shares: for each of the clients its weight and objectives (see `share_text`); empty if all clients have
            weight 1 and own all objectives.
        scales: P / P_k for each objective, as hexadecimal floats; empty if all are 1.
        trip: which trip of an ask that takes several; "" for an ask of one.
    """

    token: str
    run: str
    seed: int
    round: int
    version: str
    names: tuple[str, ...]
    clients: tuple[int, ...]
    memories: tuple[str, ...]
    keep: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    trip: str = ""

    def pack(self, messages: bytes, model: bytes | None, own: Mapping[int, bytes] = MappingProxyType({})) -> Packet:
        """Encode the request with messages, model (unless the node has it), and messages to single clients."""
        blobs = {"messages": messages} if model is None else {"messages": messages, "model": model}
        return Packet(written(self), {**blobs, **{f"own-{i}": own[i] for i in self.clients if own}})

    @classmethod
    def unpack(cls, packet: Packet, sizes: Sizes) -> tuple[NodeRequest, dict[str, Message], State | None]:
        """Read and check what `pack` wrote; returns the request, the message to each contribution, and the model."""
        request = read(cls, packet.values)
        if len(request.memories) != len(request.clients):
            raise BadMessageError(f"a request must have {len(request.clients)} memories, but has {request.memories}")
        if "messages" not in packet.blobs:
            raise BadMessageError(f"a request must have 'messages', but has {sorted(packet.blobs)}")
        joined = Message.decode(packet.blobs["messages"], largest_message(sizes))
        messages = {name: joined.part(name) for name in request.names}
        if "model" not in packet.blobs:
            return request, messages, None
        model = Message.decode(packet.blobs["model"], sizes.model_bytes + HEADER)
        x, rest = receive(model, sizes.d, sizes.dtype, "the server")
        check(
            rest,
            {"buffers": Field((sizes.buffers,), sizes.dtype), "counters": Field((sizes.counters,), torch.int64)},
            "the server",
        )
        return request, messages, State(x, rest["buffers"], rest["counters"])

    def shares_of(self, i: int, M: int) -> tuple[dict[int, Share], list[float] | None]:
        """Client i's share, if not all clients have weight 1 and own all objectives; and the scales, if any."""
        if len(self.shares) not in (0, len(self.clients)) or len(self.scales) not in (0, M):
            raise BadMessageError(f"a request must have {len(self.clients)} shares and {M} scales, but has others")
        shares = {i: read_share(self.shares[self.clients.index(i)], M)} if self.shares else {}
        return shares, [read_float(scale) for scale in self.scales] or None


@dataclass
class Answer:
    """A node's answer: encoded replies, failures and new memories by client, or that it lacks the model; `late` if it
    sent nothing in time."""

    token: str
    needs_model: bool = False
    replies: dict[int, bytes] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    memories: dict[int, str] = field(default_factory=dict)
    late: bool = False

    def pack(self) -> Packet:
        """The answer as it is sent."""
        values: dict[str, Value] = {"token": self.token, "needs_model": self.needs_model}
        values |= {f"failure-{i}": reason for i, reason in self.failures.items()}
        values |= {f"memory-{i}": digest for i, digest in self.memories.items()}
        return Packet(values, {f"client-{i}": reply for i, reply in self.replies.items()})

    @classmethod
    def unpack(cls, packet: Packet, request: NodeRequest) -> Answer:
        """Read an answer to `request`. Replies of other clients are left out; the payloads are not yet decoded."""
        token = entry(packet.values, "token", str)
        if token != request.token:
            raise BadMessageError(f"an answer must repeat the request's token {request.token}, but has {token!r:.80}")
        answer = cls(token, entry(packet.values, "needs_model", bool))
        for i in request.clients:
            if f"failure-{i}" in packet.values:
                answer.failures[i] = entry(packet.values, f"failure-{i}", str)
            elif f"client-{i}" in packet.blobs:
                answer.replies[i] = packet.blobs[f"client-{i}"]
                if f"memory-{i}" in packet.values:
                    answer.memories[i] = check_digest(entry(packet.values, f"memory-{i}", str))
        return answer


def largest_message(sizes: Sizes, N: int = 0) -> int:
    """More bytes than any message of a method needs: four times M updates. (A Jacobian with indices has three.) With N,
    the message may also have data for each of N clients."""
    return 4 * sizes.M * sizes.model_bytes + HEADER + CLIENT_BYTES * N


def clients_of(partition: int, partitions: int, N: int) -> tuple[int, ...]:
    """The clients of node `partition` of `partitions`: every client i with i mod partitions = partition.

    >>> clients_of(1, 3, 8)
    (1, 4, 7)
    """
    if not 0 <= partition < partitions:
        raise ValueError(f"partition-id must be from 0 to num-partitions - 1 ({partitions - 1}), but got {partition}")
    return tuple(range(partition, N, partitions))


def entry(values: Mapping[str, Value], name: str, kind: type[T]) -> T:
    """One value of a packet, of exactly this type."""
    value = values.get(name)
    if type(value) is not kind:
        raise BadMessageError(f"{name!r} must be of type {kind.__name__}, but is {value!r:.80}")
    return value


def written(record: Any) -> dict[str, Value]:
    """The fields of a dataclass, and the version of this protocol, as values of a packet."""
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(record).items()}
    return {"protocol": VERSION, **values}


def read(cls: type[R], values: Mapping[str, Value]) -> R:
    """Read and check what `written` made of an object of this class; its fields are plain values or tuples of them."""
    check_version(values)
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        kinds = get_args(hint)
        found[name] = list_entry(values, name, kinds[0]) if kinds else entry(values, name, hint)
    return cls(**found)


def check_version(values: Mapping[str, Value]) -> None:
    """Raise unless the other side has the same version of this protocol."""
    version = entry(values, "protocol", int)
    if version != VERSION:
        raise BadMessageError(f"all sides must have version {VERSION} of the protocol, but one has {version}")


def check_digest(text: str) -> str:
    """The digest of a client's memory, checked, since it becomes part of a file's name."""
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise BadMessageError(f"a digest must be 32 hexadecimal digits, but is {text!r:.80}")
    return text


def share_text(share: Share) -> str:
    """A client's weight and objectives as it is sent.

    >>> share_text(Share(1.5, (True, False)))
    '0x1.8000000000000p+0 10'
    """
    return f"{share.weight.hex()} {''.join(str(int(owns)) for owns in share.owned)}"


def read_share(text: str, M: int) -> Share:
    """Read and check what `share_text` wrote."""
    weight, _, owned = text.partition(" ")
    number = read_float(weight)
    if not 0 < number < math.inf or len(owned) != M or not set(owned) <= {"0", "1"}:
        raise BadMessageError(f"a share must be a positive weight and {M} digits 0 or 1, but is {text!r:.80}")
    return Share(number, tuple(digit == "1" for digit in owned))


def read_float(text: str) -> float:
    """A float that `float.hex` wrote."""
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise BadMessageError(f"a number must be a hexadecimal float, but is {text!r:.80}") from None


def list_entry(values: Mapping[str, Value], name: str, kind: type[T]) -> tuple[T, ...]:
    """One list of a packet, of items of exactly this type."""
    value = values.get(name)
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        raise BadMessageError(f"{name!r} must be a list of {kind.__name__}, but is {value!r:.80}")
    return tuple(value)  # type: ignore[arg-type]
