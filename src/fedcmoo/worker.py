"""Workers, which hold one model in memory for any number of clients in turn. Every engine runs workers."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Protocol

from fedcmoo.client import Client
from fedcmoo.client_test import with_client_test
from fedcmoo.contributions import Channels, add_reply, reply
from fedcmoo.evaluation import BATCH, evaluate
from fedcmoo.failures import FailureRule, Stop, during
from fedcmoo.first_step import FirstStep
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.ownership import Share
from fedcmoo.parameters import Precision, State
from fedcmoo.problem import Problem
from fedcmoo.randomness import derive
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums

if TYPE_CHECKING:
    from fedcmoo.privacy.secure.party import Party

KEEP_LIMIT = 512 * 2**20
"""Maximum bytes of gradients that a worker keeps from one ask of a round to the next; others are recomputed."""

PRIVATE = "private"
"""The name in a client's memory of the private part of its model."""


@dataclass(frozen=True)
class Request:
    """An ask as clients receive it.

    Attributes:
        round: t.
        version: the version of the model.
        messages: the message to each contribution, by the contribution's name.
        memories: the clients' memories from earlier rounds, by client: the method's state, and private parameters.
        shares: the clients' weights and objectives; none in a cohort whose clients all have weight 1 and own all.
        scales: P / P_k for each objective, as in `Client`.
        on_failure: what to do about clients that fail.
    """

    round: int
    version: str
    messages: Mapping[str, Message]
    memories: Mapping[int, Message] = field(default_factory=dict)
    shares: Mapping[int, Share] = field(default_factory=dict)
    scales: Sequence[float] | None = None
    on_failure: FailureRule = field(default=Stop())

    def for_clients(self, clients: Sequence[int], memories: Mapping[int, Message]) -> Request:
        """The request with the data that only some clients need."""
        return replace(
            self,
            memories={i: memories[i] for i in clients if i in memories},
            shares={i: self.shares[i] for i in clients if i in self.shares},
        )


class Worker:
    """Computes the replies of any client, with its own copy of the problem's model."""

    party: Party | None = None
    """It answers for the clients on asks of several trips; None if every ask takes one."""

    def __init__(
        self, problem: Problem, channels: Channels, seed: int, device: str = "cpu", precision: Precision = "float32"
    ) -> None:
        self.problem = problem
        self.channels = with_client_test(channels, problem)
        self.seed = seed
        self.model = problem.flat_model(device, precision)
        self.sizes = Sizes.of(self.model, problem.M)
        self._initial = self.model.private
        self._kept: dict[int, FirstStep] = {}
        self._kept_for: tuple[int, str] | None = None

    def reply(self, state: State, request: Request, i: int) -> tuple[Message, Message | None]:
        """The encoded reply of client i, and the client's new memory if the server uses the reply."""
        keep_freed_memory()
        kept_for = (request.round, request.version)
        if kept_for != self._kept_for:
            self._kept, self._kept_for = {}, kept_for
        own, remembered = request.memories.get(i, Message()).apart(PRIVATE)
        private = State(**own) if own else self._initial
        client = self.client(state.joined(private) if self.sizes.private else state, request.round, i)
        client.first = self._kept.get(i)
        client.memory = remembered
        client.share, client.scales = request.shares.get(i), request.scales
        with during(f"in phase {'+'.join(request.messages)!r} of round {request.round + 1} at {client}"):
            message = reply(self.channels, client, request.messages)
        first = client.first
        if client.has_trained:
            self._kept.pop(i, None)
        elif first is not None and client.keeps_jacobian and (len(self._kept) + 1) * first.nbytes <= KEEP_LIMIT:
            self._kept[i] = first
        return message, self._new_memory(client, own)

    def _new_memory(self, client: Client, own: Message) -> Message | None:
        """The client's new memory; None for no change."""
        if client.new_memory is None and client.new_private is None:
            return None
        remembered = client.memory if client.new_memory is None else client.new_memory
        if client.new_private is not None:
            own = Message(**client.new_private.arrays)
        return Message(**remembered, **Message.join({PRIVATE: own})).cpu()

    def trip(
        self, state: State | None, request: Request, i: int, trip: str, message: Message
    ) -> tuple[Message, Message | None]:
        """The reply of client i on one trip of an ask that takes several, and its memory as in `reply`. On trips
        without computation there is no model."""
        if self.party is None:
            raise BadMessageError("an ask of several trips needs clients with secure sums, but these have none")
        memory: Message | None = None

        def compute() -> Message:
            nonlocal memory
            if state is None:
                raise BadMessageError("clients need the model to compute a reply, but were not sent it")
            plain, memory = self.reply(state, request, i)
            return plain

        seed = round_seed(self.seed, request.round)
        return self.party.reply(i, trip, message, tuple(request.messages), compute, seed), memory

    def client(self, state: State, round: int, i: int) -> Client:
        """Client i with the whole model in this state."""
        return Client(self.problem, self.model, self.sizes, state.to(self.model.device), self.seed, round, i)


def round_seed(seed: int, round: int) -> int:
    """The seed of the random numbers that clients and server share in an ask of several trips."""
    return derive(seed, round, "trips")


class Job(Protocol):
    """A piece of a round's work that a worker does alone: a block of clients, or a part of an evaluation."""

    def run(self, worker: Worker, state: State) -> Sums:
        """Do it."""


@dataclass(frozen=True)
class AskClients:
    """Ask some clients one after the other and add up their replies."""

    request: Request
    clients: tuple[int, ...]

    def run(self, worker: Worker, state: State) -> Sums:
        sums = Sums()
        for i in self.clients:
            with self.request.on_failure.of_client(sums.failures, i):
                message, memory = worker.reply(state, self.request, i)
                share = self.request.shares.get(i)
                add_reply(sums, worker.channels, self.request.messages, message, worker.sizes, f"client {i}", share)
                if memory is not None:
                    sums.client_states[i] = memory
        return sums


@dataclass(frozen=True)
class Evaluate:
    """Losses and metrics of the model on part of the test or validation data."""

    split: str
    start: int

    def run(self, worker: Worker, state: State) -> Sums:
        data = getattr(worker.problem, self.split)
        worker.model.load(state)
        stop = min(self.start + BATCH, len(data))
        sums = Sums()
        with during(f"in an evaluation on {self.split} data, samples {self.start} to {stop - 1}"):
            totals, counts = evaluate(worker.problem, worker.model, data, self.start, stop)
        sums.add({"totals": totals, "counts": counts}, 0)
        return sums


@cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory, up to a gigabyte, for the next allocation; done once per process.

    By default glibc returns large blocks to the system, which must provide them again, page by page, at every step: for
    the activations of a small convolutional network this takes a fifth of the time.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries do not have it
    if mallopt is not None:
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 2**30)
        mallopt(m_mmap_threshold, 2**29) or mallopt(m_mmap_threshold, 2**25)  # older versions allow no more than this
