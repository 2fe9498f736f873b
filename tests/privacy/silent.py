"""An engine for tests of secure sums: the local one, with clients that fall silent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from fedcmoo.contributions import Channels
from fedcmoo.engines import Local
from fedcmoo.engines.base import Trip, TripReply, TripSession
from fedcmoo.evaluation import Scores
from fedcmoo.failures import ClientFailedError
from fedcmoo.messages import Message
from fedcmoo.ownership import Share
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums


class Silent(TripSession):
    """The local engine, on which some clients answer no more from a trip of each ask on; keeps what the server received
    of client 3."""

    def __init__(self, inner: TripSession, silent: Mapping[str, set[int]], received: list[bytes]) -> None:
        self.inner, self.silent, self.received = inner, silent, received
        self.gone: set[int] = set()

    def trip(self, trip: Trip, ask: Ask, server: Server) -> Iterator[TripReply]:
        if trip.name == "advertise":
            self.gone = set()
        self.gone |= self.silent.get(trip.name, set())
        left = {i: message for i, message in trip.messages.items() if i not in self.gone}
        for i in trip.messages.keys() - left:
            yield i, ClientFailedError("it is silent"), None
        for i, reply, memory in self.inner.trip(replace(trip, messages=left), ask, server):
            if trip.name == "mask" and i == 3:
                assert isinstance(reply, Message)
                self.received.append(reply["codes"].numpy().tobytes())
            yield i, reply, memory

    def shares(self, clients: Collection[int]) -> Mapping[int, Share]:
        return self.inner.shares(clients)

    def ask(self, ask: Ask, server: Server) -> Sums:
        raise AssertionError("a secure run asks for no single replies")

    def evaluate(self, server: Server, split: str) -> Scores:
        return self.inner.evaluate(server, split)


class SilentEngine:
    several_trips: ClassVar[bool] = True

    def __init__(self, silent: Mapping[str, set[int]] | None = None) -> None:
        self.silent = silent or {}
        self.received: list[bytes] = []

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> TripSession:
        return Silent(Local().start(problem, channels, seed, sizes), self.silent, self.received)
