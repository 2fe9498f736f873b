"""The vocabulary of a round: what a method asks its cohort, the sums that come back, and the server's state.

A method is a generator that yields an `Ask` and receives `Sums`. Everything the server needs from a cohort is a sum
over clients, so replies are added up as they arrive, workers reduce their own clients, and memory does not grow with
the cohort.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from fedcmoo.download import Download, Sent, send
from fedcmoo.failures import FailureRule, Stop
from fedcmoo.messages import Add, Message
from fedcmoo.optimizers import Optimizer
from fedcmoo.ownership import Share
from fedcmoo.parameters import FlatModel, State
from fedcmoo.randomness import numpy_generator
from fedcmoo.types import Matrix, Vector

Round = Generator["Ask", "Sums", None]
"""One round of a method: yields asks, receives the sums of their replies."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """The numbers that shapes are made of.

    Attributes:
        d: parameters of the model that are not private.
        d_shared: how many of them are shared (the first ones in x).
        M: objectives.
        buffers: float buffers; counters: integer ones.
        dtype: of the parameters.
        variances: which entries of the float buffers are BatchNorm's variances, as ranges (start, stop).
        private: parameters that never leave a client.
    """

    d: int
    d_shared: int
    M: int
    buffers: int = 0
    counters: int = 0
    dtype: torch.dtype = torch.float32
    variances: tuple[tuple[int, int], ...] = ()
    private: int = 0

    @classmethod
    def of(cls, model: FlatModel, M: int) -> Sizes:
        """The sizes of a model with M objectives."""
        public = model.public
        buffers, counters, private = public.buffers.numel(), public.counters.numel(), len(model.x) - model.d
        variances = tuple(part for part in model.variances if part[1] <= buffers)
        return cls(model.d, model.d_shared, M, buffers, counters, model.x.dtype, variances, private)

    @property
    def model_bytes(self) -> int:
        """What sending the model costs."""
        return (self.d + self.buffers) * self.dtype.itemsize + self.counters * 8


@dataclass(frozen=True)
class Ask:
    """One request to the cohort (or to other `clients`) for one or more contributions.

    The model itself is not part of the messages: engines send it along with the first ask about a model that reaches
    a client.

    Attributes:
        messages: what each contribution is sent, by the contribution's name.
        clients: who is asked; None for the cohort.
    """

    messages: Mapping[str, Message]
    clients: tuple[int, ...] | None = None

    @property
    def phase(self) -> str:
        """What the history calls this part of a round: the name of its first contribution."""
        return next(iter(self.messages))

    @property
    def nbytes(self) -> int:
        """The size of what a client is sent, without the model."""
        return sum(message.nbytes for message in self.messages.values())


@dataclass
class Masking:
    """What secure sums cost in addition to the codes themselves: bytes in both directions, and seconds."""

    up: int = 0
    down: int = 0
    seconds: float = 0.0


class Sums:
    """Running sums of the replies to an ask. Array `key` of contribution `name` is called "name/key".

    >>> sums = Sums()
    >>> sums.add({"train/update": torch.tensor([1.0, 2.0])}, nbytes=8)
    >>> sums.add({"train/update": torch.tensor([3.0, 2.0])}, nbytes=8)
    >>> sums.count, sums.mean("train/update").tolist(), sums.uploaded
    (2, [2.0, 2.0], 16)
    >>> sums.part("train")["update"].tolist()
    [4.0, 4.0]

    Attributes:
        count: how many clients replied.
        P: the sum of their weights p_i; the number of clients where all have weight 1.
        P_k: for each objective the sum of its owners' weights, float64 [M]; None where all clients have weight 1 and
            own all objectives.
        uploaded: the bytes of their replies.
        totals: the sums by name.
        noise: the standard deviation of the noise in each entry of the totals that have some, by name.
        failures: why clients did not reply.
        stalled: those of them that did not reply in time.
        client_states: what clients will remember if the server accepts the round, by client.
        masking: what hiding single replies cost.
    """

    def __init__(self) -> None:
        self.count = 0
        self.P: float = 0
        self.P_k: Tensor | None = None
        self.uploaded = 0
        self.totals: dict[str, Tensor] = {}
        self.noise: dict[str, float] = {}
        self.failures: dict[int, str] = {}
        self.stalled: set[int] = set()
        self.client_states: dict[int, Message] = {}
        self.masking = Masking()
        self._how: dict[str, Add] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self.totals[name]

    def add(
        self,
        arrays: Mapping[str, Tensor],
        nbytes: int,
        how: Mapping[str, Add] | None = None,
        share: Share | None = None,
    ) -> None:
        """Add one client's arrays, which cost `nbytes` to upload. The arrays are not kept.

        Args:
            arrays: by name.
            nbytes: the size of the client's reply.
            how: the way to add each array: "sum" (where nothing is said), "newest" to keep the last one, "each" to put
                them one below the other.
            share: the client's weight and objectives; None in a cohort whose clients all have weight 1 and own all.
        """
        self._how |= how or {}
        self._add(arrays, copy=True)
        self.count += 1
        self._add_weights(1 if share is None else share.weight, None if share is None else share.weights)
        self.uploaded += nbytes

    def merge(self, later: Sums) -> None:
        """Add the sums of later clients."""
        self._how |= later._how
        self._add(later.totals, copy=False)
        self.count += later.count
        self._add_weights(later.P, later.P_k)
        self.uploaded += later.uploaded
        self.failures |= later.failures
        self.stalled |= later.stalled
        self.client_states |= later.client_states

    def mean(self, name: str) -> Tensor:
        """The average over the clients that replied: 1/P Σ p_i a_i, where clients have sent p_i a_i."""
        return self.totals[name] / self.P

    def objective_mean(self, name: str) -> Tensor:
        """The average of an array [M, ...] over each objective's owners: row k is 1/P_k Σ p_i a_{i,k}.

        A row is NaN if none of the clients owns its objective.
        """
        total = self.totals[name]
        if self.P_k is None:
            return total / self.P
        return total / self.P_k.to(total).reshape(-1, *[1] * (total.ndim - 1))

    def pair_mean(self, products: Tensor) -> Tensor:
        """Sums of products of two objectives' arrays, [M, M], with entry (j, k) divided by P_j P_k."""
        if self.P_k is None:
            return products / self.P**2
        return products / torch.outer(self.P_k, self.P_k).to(products)

    def mean_noise(self, name: str) -> float:
        """The standard deviation of the noise in each entry of the average."""
        return self.noise.get(name, 0.0) / self.P

    def part(self, prefix: str) -> Sums:
        """The sums of one contribution, under the names that it gave its arrays."""
        part = Sums()
        part.count, part.failures = self.count, self.failures
        part.P, part.P_k = self.P, self.P_k
        start = f"{prefix}/"
        part.totals = {n.removeprefix(start): array for n, array in self.totals.items() if n.startswith(start)}
        part.noise = {n.removeprefix(start): std for n, std in self.noise.items() if n.startswith(start)}
        return part

    def _add_weights(self, P: float, P_k: Tensor | None) -> None:
        self.P += P
        if P_k is not None:
            self.P_k = P_k if self.P_k is None else self.P_k + P_k

    def _add(self, arrays: Mapping[str, Tensor], copy: bool) -> None:
        for name, array in arrays.items():
            if name not in self.totals or self._how.get(name) == "newest":
                self.totals[name] = array.clone() if copy else array
            elif self._how.get(name) == "each":
                self.totals[name] = torch.cat([self.totals[name], array])
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
        client_states: what each client keeps from round to round, for methods with stateful clients. An engine whose
            clients keep their own state (Flower) has a reference here instead.
        saved_client_states: those of the checkpoints to which the run may go back.
        download: how the model is sent to clients.
        id: identifies the run, also after it was resumed.
        on_failure: what to do about clients that fail.
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
        """The model as it is sent to clients, and as it arrives there: the same whenever it is sent in a round."""
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

    def descend(self, direction: Tensor, sums: Sums, lr: float, optimizer: Optimizer) -> None:
        """One step of the server's optimizer; buffers become the clients' mean, counters those of the newest reply.

        Args:
            direction: what stands in the gradient's place, [d].
            sums: of the contribution that trained.
            lr: the server's learning rate.
            optimizer: SGD() for x <- x - lr * direction. What it remembers is part of `memory`.
        """
        start = "optimizer/"
        # Copies, since a checkpoint may still hold the arrays of the last round.
        state = {n.removeprefix(start): array.clone() for n, array in self.memory.items() if n.startswith(start)}
        optimizer.step(self.x, direction, lr, state)
        self.memory |= {start + name: array for name, array in state.items()}
        if "buffers" in sums.totals:
            self.buffers = sums.mean("buffers")
        if "counters" in sums.totals:
            self.counters = sums["counters"]


def drive(steps: Generator[Ask, Sums, T], answer: Callable[[Ask], Sums]) -> T:
    """Run a generator of asks to its end, with `answer` for each ask; returns what the generator returns."""
    try:
        ask = next(steps)
        while True:
            ask = steps.send(answer(ask))
    except StopIteration as end:
        result: T = end.value
        return result
