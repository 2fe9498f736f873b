"""The interface of rounds for methods: asks to the cohort, and the server's state.

A method is a generator that yields an `Ask` and receives `Sums`. Everything the server needs from a cohort is a sum
over clients, so replies are added up as they arrive, workers add up their own clients' replies, and memory does not
grow with the cohort.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from fedcmoo.download import Download, Sent, send
from fedcmoo.failures import FailureRule, Stop
from fedcmoo.messages import Message
from fedcmoo.parameters import FlatModel, State
from fedcmoo.randomness import numpy_generator
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix, Vector

Round = Generator["Ask", "Sums", None]
"""One round of a method: yields asks, receives the sums of their replies."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model and its objectives, which determine array shapes.

    Attributes:
        d: parameters of the model that are not private.
        d_shared: how many of them are shared (the first ones in x).
        M: objectives.
        buffers: float buffers; counters: integer ones.
        dtype: of the parameters.
        variances: which entries of the float buffers are BatchNorm's variances, as ranges (start, stop).
        private: parameters that never leave a client.
        channels_last: the layout of convolution kernels in x.
    """

    d: int
    d_shared: int
    M: int
    buffers: int = 0
    counters: int = 0
    dtype: torch.dtype = torch.float32
    variances: tuple[tuple[int, int], ...] = ()
    private: int = 0
    channels_last: bool = True

    @classmethod
    def of(cls, model: FlatModel, M: int) -> Sizes:
        """The sizes of a model with M objectives."""
        public = model.public
        buffers, counters, private = public.buffers.numel(), public.counters.numel(), len(model.x) - model.d
        variances = tuple(part for part in model.variances if part[1] <= buffers)
        dtype, layout = model.x.dtype, model.channels_last
        return cls(model.d, model.d_shared, M, buffers, counters, dtype, variances, private, layout)

    @property
    def model_bytes(self) -> int:
        """The size in bytes of sending the model."""
        return (self.d + self.buffers) * self.dtype.itemsize + self.counters * 8


@dataclass(frozen=True)
class Ask:
    """One request to the cohort (or to other `clients`) for one or more contributions.

    The model itself is not part of the messages: engines send it along with the first ask about a model that reaches
    a client.

    Attributes:
        messages: the message to each contribution, by the contribution's name.
        clients: the clients that are asked; None for the cohort.
    """

    messages: Mapping[str, Message]
    clients: tuple[int, ...] | None = None

    @property
    def phase(self) -> str:
        """The name of this part of a round in the history: that of its first contribution."""
        return next(iter(self.messages))

    @property
    def size(self) -> int:
        """The bytes that are sent to a client, without the model."""
        return Message.join(self.messages).size


@dataclass
class Server:
    """The server's state, which rounds read and change and checkpoints save.

    Attributes:
        x: the model, [d]; buffers and counters: its non-trainable state.
        w: the objectives' weights, float64 [M].
        round: t, counted from 0.
        cohort: the clients of this round, B^(t), in ascending order.
        N: the number of all clients.
        memory: state that a method keeps from round to round.
        client_states: state that each client keeps from round to round, for methods with stateful clients. Engines
            whose clients store their own state (Flower) keep a reference here instead.
        saved_client_states: those of the checkpoints to which the run may return.
        download: how the model is sent to clients.
        id: identifies the run, even after it is resumed.
        on_failure: what to do about clients that fail.
        scales: P / P_k for each objective, if it is the same in all rounds; None for that of each cohort.
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
    client_states: dict[int, Message] = field(default_factory=dict)
    saved_client_states: tuple[dict[int, Message], ...] = ()
    download: Download = "full"
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    on_failure: FailureRule = field(default=Stop())
    scales: Sequence[float] | None = None
    G: Matrix | None = None
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def everyone(self) -> tuple[int, ...]:
        """All clients."""
        return tuple(range(self.N))

    @property
    def model(self) -> State:
        """The model."""
        return State(self.x, self.buffers, self.counters)

    @property
    def sent(self) -> Sent:
        """The model as sent to and received by clients: the same each time it is sent in a round."""
        return send(self.model, self.download, self.seed, self.round)

    def sample(self, n: int, purpose: str) -> tuple[int, ...]:
        """n of the N clients, uniformly without replacement, the same for equal (seed, round, purpose)."""
        chosen = numpy_generator(self.seed, self.round, "sample", purpose).choice(self.N, size=n, replace=False)
        return tuple(sorted(int(i) for i in chosen))

    def start_round(self, clients_per_round: int) -> None:
        """Line 4 of Algorithm 1: select B^(t) uniformly at random."""
        self.G = None
        self.notes = {}
        self.cohort = self.sample(clients_per_round, "cohort")


def drive(steps: Generator[Ask, Sums, T], answer: Callable[[Ask], Sums]) -> T:
    """Run a generator of asks to its end, calling `answer` for each ask; returns the generator's return value."""
    try:
        ask = next(steps)
        while True:
            ask = steps.send(answer(ask))
    except StopIteration as end:
        result: T = end.value
        return result
