"""The words of a round: what a method asks its cohort, what a client does about it, and the sums that come back.

A method is a generator that yields an `Ask` and receives `Sums`. Everything the server needs of the cohort is a sum
over clients, so replies are added up as they arrive, workers may reduce their own clients, and memory does not grow
with the cohort.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcmoo.messages import Message
from fedcmoo.randomness import numpy_generator
from fedcmoo.types import Matrix, Vector

if TYPE_CHECKING:
    from fedcmoo.client import Client

Round = Generator["Ask", "Sums", None]
"""One round of a method: yields asks, receives the sums of their replies."""


@dataclass(frozen=True)
class Sizes:
    """The numbers that shapes are made of.

    Attributes:
        d: parameters of the model.
        d_shared: how many of them are shared (the first ones in x).
        M: objectives.
        buffers: float buffers; counters: integer ones.
        dtype: of the parameters.
    """

    d: int
    d_shared: int
    M: int
    buffers: int = 0
    counters: int = 0
    dtype: torch.dtype = torch.float32

    @property
    def model_bytes(self) -> int:
        """What sending the model costs."""
        return (self.d + self.buffers) * self.dtype.itemsize + self.counters * 8


@dataclass(frozen=True)
class Ask:
    """One question to the cohort (or to other `clients`): the phase names the task, the message comes with it.

    The model itself is not part of the message: engines send it along with the first ask of a round that reaches a
    client.
    """

    phase: str
    message: Message = field(default_factory=Message)
    clients: tuple[int, ...] | None = None


class Task(ABC):
    """What happens in one phase: `answer` on the client, `accept` on the server."""

    @abstractmethod
    def answer(self, client: Client, message: Message) -> Message:
        """The client's side: the reply, as it goes over the wire (its bytes are counted)."""

    @abstractmethod
    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        """The server's side: check one reply to `message` and decode it to the arrays that add up over clients."""


class Sums:
    """Running sums of the replies. Floats add up; of integers (counters) the newest stay.

    >>> sums = Sums()
    >>> sums.add({"update": torch.tensor([1.0, 2.0])}, nbytes=8)
    >>> sums.add({"update": torch.tensor([3.0, 2.0])}, nbytes=8)
    >>> sums.count, sums.mean("update").tolist(), sums.uploaded
    (2, [2.0, 2.0], 16)
    """

    def __init__(self) -> None:
        self.count = 0
        self.uploaded = 0
        self.totals: dict[str, Tensor] = {}
        self.failures: dict[int, str] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self.totals[name]

    def add(self, arrays: Mapping[str, Tensor], nbytes: int) -> None:
        """Add one client's arrays, which cost `nbytes` to upload. The arrays are not kept."""
        self._add(arrays, copy=True)
        self.count += 1
        self.uploaded += nbytes

    def merge(self, later: Sums) -> None:
        """Add the sums of later clients."""
        self._add(later.totals, copy=False)
        self.count += later.count
        self.uploaded += later.uploaded
        self.failures.update(later.failures)

    def mean(self, name: str) -> Tensor:
        """The average over the clients that replied."""
        return self.totals[name] / self.count

    def _add(self, arrays: Mapping[str, Tensor], copy: bool) -> None:
        for name, array in arrays.items():
            if name not in self.totals or not array.is_floating_point():
                self.totals[name] = array.clone() if copy else array
            else:
                self.totals[name] += array


@dataclass
class Server:
    """The server's state: what a round reads and changes, and what a checkpoint holds.

    Attributes:
        x: the model, [d]; buffers and counters: its non-trainable state.
        w: the objectives' weights, float64 [M].
        round: t, counted from 0.
        cohort: the clients of this round, B^(t), in ascending order.
        N: the number of all clients.
        memory: what a method keeps from round to round.
        G: the Gram matrix of this round if the method estimated one, float64 [M, M].
        notes: further numbers of this round for the history.
    """

    sizes: Sizes
    seed: int
    N: int
    x: Tensor
    buffers: Tensor
    counters: Tensor
    w: Vector
    round: int = 0
    cohort: tuple[int, ...] = ()
    memory: dict[str, Tensor] = field(default_factory=dict)
    G: Matrix | None = None
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def everyone(self) -> tuple[int, ...]:
        """All clients."""
        return tuple(range(self.N))

    def sample(self, n: int, purpose: str) -> tuple[int, ...]:
        """n of the N clients, uniformly without replacement, the same for equal (seed, round, purpose)."""
        chosen = numpy_generator(self.seed, self.round, "sample", purpose).choice(self.N, size=n, replace=False)
        return tuple(sorted(int(i) for i in chosen))

    def start_round(self, clients_per_round: int) -> None:
        """Line 4 of Algorithm 1: select B^(t) uniformly at random."""
        self.G = None
        self.notes = {}
        self.cohort = self.sample(clients_per_round, "cohort")

    def descend(self, direction: Tensor, sums: Sums, lr: float) -> None:
        """x <- x - lr * direction; buffers become the clients' mean, counters those of the newest reply."""
        self.x.sub_(direction, alpha=lr)
        if "buffers" in sums.totals:
            self.buffers = sums.mean("buffers")
        if "counters" in sums.totals:
            self.counters = sums["counters"]
