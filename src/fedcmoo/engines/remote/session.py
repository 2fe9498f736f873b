"""The engine for clients on nodes on other machines."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch

from fedcmoo.client_test import with_client_test
from fedcmoo.contributions import Channels, add_reply
from fedcmoo.engines.base import Trip, TripReply, TripSession, blocks
from fedcmoo.engines.local import Local
from fedcmoo.engines.remote.nodes import NodeInfo, NodeRegistry, Outcome, Transport, describe
from fedcmoo.engines.remote.protocol import Answer, NodeRequest, largest_message, share_text
from fedcmoo.evaluation import Scores
from fedcmoo.failures import ClientFailedError, FailureRule
from fedcmoo.messages import DIGEST, BadMessageError, Message
from fedcmoo.optional import require
from fedcmoo.ownership import Share, scales, unequal
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.validation import positive


@dataclass(frozen=True)
class Remote:
    """A federation of nodes.

    Args:
        transport: how to reach nodes.
        deadline: seconds that nodes have for one ask; later replies are left out.
        start_deadline: seconds to wait at the start for a node for every client.
    """

    several_trips: ClassVar[bool] = True

    transport: Transport
    deadline: float = 600.0
    start_deadline: float = 120.0

    def __post_init__(self) -> None:
        require("cryptography", "privacy")
        positive(deadline=self.deadline, start_deadline=self.start_deadline)

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> RemoteSession:
        return RemoteSession(problem, channels, seed, sizes, self)


class RemoteSession(TripSession):
    """A session that sends one request per node and ask; replies are checked, decoded and added up in client order."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes, settings: Remote) -> None:
        self.problem, self.channels = problem, with_client_test(channels, problem)
        self.seed, self.sizes = seed, sizes
        self.settings = settings
        self._process = secrets.token_hex(8)
        self._serial = itertools.count()
        self._has_model: dict[int, str] = {}
        self._nodes = NodeRegistry(settings.transport, problem, self._mismatch)
        self._nodes.wait_for_all(time.monotonic() + settings.start_deadline)
        self._local = Local().start(problem, channels, seed, sizes)

    def ask(self, ask: Ask, server: Server) -> Sums:
        clients = server.cohort if ask.clients is None else ask.clients
        routes, lost = self._nodes.route(clients)
        shares = self.shares(set(clients) - set(lost))
        replies = OrderedSum(self.channels, ask.messages, clients, self.sizes, shares, server.on_failure)
        for i, reason in lost.items():
            replies.fail(i, reason)
        for answer in self._gather(ask, server, routes, shares):
            if answer.late:
                replies.total.stalled |= set(answer.failures)
            replies.add(answer)
        return replies.total

    def trip(self, trip: Trip, ask: Ask, server: Server) -> Iterator[TripReply]:
        routes, lost = self._nodes.route(tuple(trip.messages))
        for i, reason in lost.items():
            yield i, ClientFailedError(reason), None
        shares = self.shares(set(trip.messages) - set(lost))
        largest = largest_message(self.sizes, self.problem.N)
        for answer in self._gather(ask if trip.computes else Ask({}), server, routes, shares, trip):
            for i, reason in answer.failures.items():
                yield i, TimeoutError(reason) if answer.late else ClientFailedError(reason), None
            for i, data in answer.replies.items():
                try:
                    yield i, Message.decode(data, largest), _reference(answer.memories.get(i))
                except BadMessageError as error:
                    yield i, error, None

    def shares(self, clients: Collection[int]) -> Mapping[int, Share]:
        return unequal({i: self._nodes.shares[i] for i in sorted(clients)})

    def evaluate(self, server: Server, split: str) -> Scores:
        return self._local.evaluate(server, split)

    def close(self) -> None:
        self._local.close()

    def _gather(
        self,
        ask: Ask,
        server: Server,
        routes: dict[int, tuple[int, ...]],
        shares: Mapping[int, Share],
        trip: Trip | None = None,
    ) -> Iterator[Answer]:
        """Send requests and yield the answers, until every client has replied or failed."""
        sent = server.sent
        version = sent.state.version
        own = {} if trip is None else {i: message.encode() for i, message in trip.messages.items()}
        name = "" if trip is None else trip.name
        messages = Message.join(ask.messages).encode()
        model = cache(sent.message.encode)
        until = time.monotonic() + self.settings.deadline
        send_model = {node for node in routes if self._has_model.get(node) != version} if ask.messages else set()
        while routes:
            requests = {node: self._request(ask, server, version, ids, shares, name) for node, ids in routes.items()}
            packets = {
                node: request.pack(messages, model() if node in send_model else None, own)
                for node, request in requests.items()
            }
            left = dict(requests)
            routes = {}
            for node, outcome in self.settings.transport.send("ask", packets, until).answers(until):
                answer = _read(outcome, left.pop(node), got_model=node in send_model)
                if answer.needs_model:  # its disk was cleared
                    routes[node] = requests[node].clients
                    send_model.add(node)
                    continue
                if answer.replies and ask.messages:
                    self._has_model[node] = version
                yield answer
            for request in left.values():
                yield replace(_read(f"no answer within {self.settings.deadline:g} seconds", request, True), late=True)

    def _request(
        self, ask: Ask, server: Server, version: str, clients: tuple[int, ...], shares: Mapping[int, Share], trip: str
    ) -> NodeRequest:
        saved = [states[i] for states in server.saved_client_states for i in clients if i in states]
        return NodeRequest(
            token=f"{self._process}/{server.round}/{trip or ask.phase}/{next(self._serial)}",
            run=server.id,
            seed=self.seed,
            round=server.round,
            version=version,
            names=tuple(ask.messages),
            clients=clients,
            memories=tuple(_hex(server.client_states.get(i)) for i in clients),
            keep=tuple(_hex(reference) for reference in saved),
            shares=tuple(share_text(shares[i]) for i in clients if i in shares),
            scales=tuple(scale.hex() for scale in server.scales or scales(shares) or ()),
            trip=trip,
        )

    def _mismatch(self, info: NodeInfo) -> str | None:
        """The reason why a node cannot take part; None if it can."""
        mine = describe(self.problem, self.sizes)
        for name in ("N", "objectives", "sizes"):
            if getattr(info, name) != getattr(mine, name):
                return f"{name} must be {getattr(mine, name)}, as at the server, but is {getattr(info, name)!r:.200}"
        return None


class OrderedSum:
    """Adds up replies in client order, block by block like every engine, so that the bits are the same.

    A reply is decoded and added as soon as all clients before it have replied or failed, and not kept.
    """

    def __init__(
        self,
        channels: Channels,
        messages: Mapping[str, Message],
        clients: tuple[int, ...],
        sizes: Sizes,
        shares: Mapping[int, Share],
        on_failure: FailureRule,
    ) -> None:
        self.total = Sums()
        self._channels, self._messages, self._sizes, self._shares = channels, messages, sizes, shares
        self._on_failure = on_failure
        self._blocks = [list(block) for block in blocks(clients)]
        self._block = Sums()
        self._waiting: dict[int, tuple[bytes, str | None] | str] = {}

    def fail(self, i: int, reason: str) -> None:
        """Record that client i will not reply."""
        self._waiting[i] = reason
        self._advance()

    def add(self, answer: Answer) -> None:
        """The replies and failures of one node."""
        self._waiting |= answer.failures
        self._waiting |= {i: (reply, answer.memories.get(i)) for i, reply in answer.replies.items()}
        self._advance()

    def _advance(self) -> None:
        while self._blocks and self._blocks[0][0] in self._waiting:
            i = self._blocks[0].pop(0)
            outcome = self._waiting.pop(i)
            # Any error caused by a remote sender counts as a failure of that sender.
            with self._on_failure.of_client(self._block.failures, i):
                if isinstance(outcome, str):
                    raise ClientFailedError(outcome)
                self._decode(i, *outcome)
            if not self._blocks[0]:
                self._blocks.pop(0)
                self.total.merge(self._block)
                self._block = Sums()

    def _decode(self, i: int, data: bytes, memory: str | None) -> None:
        reply = Message.decode(data, largest_message(self._sizes))
        add_reply(self._block, self._channels, self._messages, reply, self._sizes, f"client {i}", self._shares.get(i))
        reference = _reference(memory)
        if reference is not None:
            self._block.client_states[i] = reference


def _reference(digest: str | None) -> Message | None:
    """The server's reference to a client's memory, which is on its node: the digest."""
    if digest is None:
        return None
    return Message(**{DIGEST: torch.frombuffer(bytearray.fromhex(digest), dtype=torch.uint8)})


def _hex(reference: Message | None) -> str:
    """The digest of a client's memory, from the server's reference to it."""
    return "" if reference is None else bytes(reference[DIGEST].tolist()).hex()


def _read(outcome: Outcome, request: NodeRequest, got_model: bool) -> Answer:
    """A node's answer; every client of the request has a reply or a failure in it, unless the node lacks the model."""
    try:
        if isinstance(outcome, str):
            raise BadMessageError(outcome)
        answer = Answer.unpack(outcome, request)
        if answer.needs_model and got_model:
            raise BadMessageError("a node must not ask for the model that it was just sent, but did")
    except BadMessageError as error:
        return Answer(request.token, failures=dict.fromkeys(request.clients, str(error)))
    if not answer.needs_model:
        for i in request.clients:
            if i not in answer.replies:
                answer.failures.setdefault(i, "the node sent no reply for it")
    return answer
