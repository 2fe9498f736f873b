"""The engine that runs clients in the same process, one after the other on one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.contributions import Channels
from fedcmoo.engines.base import BlockSession, Trip, TripReply, TripSession
from fedcmoo.parameters import Precision, State, check_device, check_precision
from fedcmoo.privacy.secure import secure_of
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.validation import at_least_one
from fedcmoo.worker import Job, Worker


@dataclass(frozen=True)
class Local:
    """Run all clients in this process.

    On Linux, training tells the C library to keep freed memory for the next allocation, up to a gigabyte; this setting
    remains after the run. Engines with worker processes do not change this process's settings.

    Args:
        threads: the number of threads of torch's operators. One by default, as in the workers of all engines, so that
            all give the same bits.
        device: the device of the model.
        precision: "bfloat16" for automatic mixed precision, if the hardware supports it.
    """

    several_trips: ClassVar[bool] = True

    threads: int = 1
    device: str = "cpu"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        at_least_one(threads=self.threads)
        check_device(self.device)
        check_precision(self.precision, self.device)

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> LocalSession:
        return LocalSession(problem, channels, seed, self)


class LocalSession(BlockSession, TripSession):
    """One worker in this process."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, settings: Local) -> None:
        self.worker = Worker(problem, channels, seed, settings.device, settings.precision)
        secure = secure_of(channels)
        if secure is not None:
            from fedcmoo.privacy.secure.party import Party  # needs the extra `privacy`

            self.worker.party = Party(secure, channels, self.worker.sizes)
        super().__init__(problem, settings.threads)

    def run(self, jobs: Sequence[Job], state: State) -> Iterator[Sums]:
        for job in jobs:
            yield job.run(self.worker, state)

    def trip(self, trip: Trip, ask: Ask, server: Server) -> Iterator[TripReply]:
        request = self.request(ask, server, trip.messages)
        for i, message in trip.messages.items():
            own = request.for_clients((i,), server.client_states)
            yield i, *self.worker.trip(server.sent.state, own, i, trip.name, message)
