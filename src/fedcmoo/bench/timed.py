"""A contribution whose client's side is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes

T = TypeVar("T")


@dataclass
class Clock:
    """Seconds that were spent in something."""

    seconds: float = 0.0

    def time(self, work: Callable[[], T], timer: Callable[[], float] = time.perf_counter) -> T:
        """Do something, and add its time."""
        start = timer()
        result = work()
        self.seconds += timer() - start
        return result


@dataclass(frozen=True)
class Timed(Contribution):
    """Another contribution, with a clock that runs while a client computes and encodes it."""

    contribution: Contribution
    clock: Clock

    def compute(self, client: Client, message: Message) -> Arrays:
        return self.clock.time(lambda: self.contribution.compute(client, message))

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return self.contribution.fields(sizes)

    def encode(self, arrays: Arrays, client: Client) -> Message:
        return self.clock.time(lambda: self.contribution.encode(arrays, client))

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        return self.contribution.decode(payload, sizes, sender)
