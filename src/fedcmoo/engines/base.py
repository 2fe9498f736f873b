"""The interface of engines, which send a method's asks to clients and return the sums of the replies."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch

from fedcmoo.contributions import Channels
from fedcmoo.evaluation import BATCH, Scores, scores
from fedcmoo.messages import Message
from fedcmoo.ownership import Share, scales, unequal
from fedcmoo.parameters import State
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.worker import AskClients, Evaluate, Job, Request

BLOCKS = 32
"""The maximum number of blocks in which a cohort is summed. It does not depend on the number of workers, so every
engine gives the same bits."""


class Session(ABC):
    """A started engine, independent of any algorithm."""

    @abstractmethod
    def ask(self, ask: Ask, server: Server) -> Sums:
        """Ask the clients (by default the cohort) and add up their replies in client order."""

    @abstractmethod
    def evaluate(self, server: Server, split: str) -> Scores:
        """Losses and metrics of the server's model on the problem's "test" or "validation" data."""

    def close(self) -> None:  # noqa: B027 - most engines have nothing to end
        """Stop everything that was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Trip:
    """One of several trips to the clients in an ask.

    Attributes:
        name: the task of the clients.
        messages: the message to each client that is asked.
        computes: whether clients compute their contributions on this trip, and so need the model.
    """

    name: str
    messages: Mapping[int, Message]
    computes: bool = False


TripReply = tuple[int, Message | Exception, Message | None]
"""A client, its reply or the reason why there is none (a TimeoutError if it is late), and its new memory if the server
uses the reply."""


class TripSession(Session):
    """A session of an engine that supports asks of several trips."""

    @abstractmethod
    def trip(self, trip: Trip, ask: Ask, server: Server) -> Iterator[TripReply]:
        """The replies of all clients of a trip, in any order, as they arrive."""

    @abstractmethod
    def shares(self, clients: Collection[int]) -> Mapping[int, Share]:
        """The clients' weights and objectives; none if all have weight 1 and own all objectives."""


class Engine(Protocol):
    """The settings of an engine; `start` starts it for one run."""

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> Session:
        """A session for this problem, with the channels of a method's contributions."""


def numerics(engine: Engine | None) -> dict[str, int | str]:
    """The settings of an engine that change the bits of a result. All others affect only the time."""
    return {
        name: getattr(engine, name, default)
        for name, default in (("threads", 1), ("device", "cpu"), ("precision", "float32"))
    }


class BlockSession(Session):
    """A session that splits the work into jobs for workers; engines on one machine differ only in how they run jobs.

    A subclass must call this constructor when nothing can fail any more, or close itself on failure, which undoes it.
    `threads` is the number of threads of torch's operators in this process during the session. With more than one per
    worker, threads compete for cores: two processes with two threads on two cores are several times slower.
    """

    def __init__(self, problem: Problem, threads: int = 1) -> None:
        self.problem = problem
        self._threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)

    def close(self) -> None:
        torch.set_num_threads(self._threads_before)

    @abstractmethod
    def run(self, jobs: Sequence[Job], state: State) -> Iterator[Sums]:
        """The sums of each job, in the order of the jobs."""

    def ask(self, ask: Ask, server: Server) -> Sums:
        clients = server.cohort if ask.clients is None else ask.clients
        request = self.request(ask, server, clients)
        jobs = [AskClients(request.for_clients(block, server.client_states), block) for block in blocks(clients)]
        return self._total(jobs, server.sent.state)

    def request(self, ask: Ask, server: Server, clients: Collection[int]) -> Request:
        """The ask as these clients receive it."""
        shares = self.shares(clients)
        messages = {name: message.cpu() for name, message in ask.messages.items()}
        return Request(
            server.round,
            server.sent.state.version,
            messages,
            shares=shares,
            scales=server.scales or scales(shares),
            on_failure=server.on_failure,
        )

    def shares(self, clients: Collection[int]) -> Mapping[int, Share]:
        """The clients' weights and objectives; none if all have weight 1 and own all objectives."""
        return unequal({i: self.problem.share(i) for i in clients})

    def evaluate(self, server: Server, split: str) -> Scores:
        length = len(getattr(self.problem, split))
        jobs = [Evaluate(split, start) for start in range(0, length, BATCH)]
        sums = self._total(jobs, server.model)
        return scores(self.problem, sums["totals"], sums["counts"])

    def _total(self, jobs: Sequence[Job], model: State) -> Sums:
        total = Sums()
        for sums in self.run(jobs, model):
            total.merge(sums)
        return total


def blocks(clients: Sequence[int]) -> list[tuple[int, ...]]:
    """Split the cohort into at most BLOCKS blocks of consecutive clients, as equal in size as possible.

    >>> blocks([3, 5, 8])
    [(3,), (5,), (8,)]
    """
    n = min(BLOCKS, len(clients))
    return [tuple(int(i) for i in block) for block in np.array_split(np.asarray(clients), n)]
