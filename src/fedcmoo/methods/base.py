"""The base class of methods: the settings of local training, and a round as a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcmoo.client import Client
from fedcmoo.compression import COMPRESSORS, Compressor, Rotated
from fedcmoo.contributions import Arrays, Channel, Channels, Contribution, Stage
from fedcmoo.drift import DRIFT, Drift
from fedcmoo.messages import Field, Message, check
from fedcmoo.methods.compressed import Compressed
from fedcmoo.methods.sorted_entries import LearnSizes, SortedEntries
from fedcmoo.optimizers import OPTIMIZERS, SGD, Optimizer
from fedcmoo.ownership import local_weights
from fedcmoo.randomness import seeded
from fedcmoo.rounds import Round, Server, Sizes
from fedcmoo.settings import Named, registered, resolve_names
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix, Vector
from fedcmoo.validation import at_least_one, positive
from fedcmoo.weights import RememberingWeights, Rule, weigh

STATE = "optimizer/"
"""The prefix of the names of the server's optimizer's state in the server's memory."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base class of federated algorithms: `round` runs on the server, `contributions` are computed by clients.

    Args:
        client_lr: η_c, the clients' learning rate.
        server_lr: η_s, the server's learning rate.
        local_steps: K, the number of local steps per round.
        batch_size: the number of samples in a client's batch; None for all of its data.
        optimizer: the clients' optimizer; its state is reset in every round.
        server: the server's optimizer, for which the mean update is the gradient; SGD() without momentum adds it to x.
        decay: (a, b), two rounds between which the server's rate falls linearly, to 1 / (b - a) of its value from round
            b on; None for a constant rate.
        update: how updates (or gradients) of the model are compressed; None to send them uncompressed.
        update_budget: the size of a client's compressed updates, in multiples of d numbers of 32 bits.
    """

    title: ClassVar[str]
    """One line for `fedcmoo list`."""
    display_name: ClassVar[str | None] = None
    """The method's name in tables and figures; None for that of its class."""

    client_lr: float = 0.3
    server_lr: float = 1.0
    local_steps: int = 10
    batch_size: int | None = 128
    optimizer: Named[Optimizer] = registered(SGD(), OPTIMIZERS)
    server: Named[Optimizer] = registered(SGD(), OPTIMIZERS)
    decay: Sequence[int] | None = None
    update: Compressor | None = registered(None, COMPRESSORS)
    update_budget: float = 0.03

    def __post_init__(self) -> None:
        resolve_names(self)
        positive(client_lr=self.client_lr, server_lr=self.server_lr, update_budget=self.update_budget)
        at_least_one(local_steps=self.local_steps, batch_size=self.batch_size)
        if self.decay is not None and not (len(self.decay) == 2 and 0 <= self.decay[0] < self.decay[1]):
            raise ValueError(f"decay must be two rounds a < b, but got {list(self.decay)}")

    @property
    def local(self) -> tuple[float, int, int | None, Optimizer]:
        """The settings of local training: η_c, K, the batch size and the optimizer."""
        return self.client_lr, self.local_steps, self.batch_size, self.optimizer

    def gradients(self, M: int) -> float:
        """The number of gradients that a client computes in a round, for estimates of its time."""
        return self.local_steps

    @classmethod
    def label(cls) -> str:
        """The method's name in tables and figures."""
        return cls.display_name or cls.__name__

    @abstractmethod
    def contributions(self) -> Mapping[str, Contribution]:
        """The quantities that clients compute, by the names under which the server requests them."""

    def channels(self, stages: Sequence[Stage] = ()) -> Channels:
        """The channels of all contributions, with the same stages."""
        return {name: self._channel(plain, stages) for name, plain in self.contributions().items()}

    def _channel(self, plain: Contribution, stages: Sequence[Stage]) -> Channel:
        """The channel of a contribution, compressed if it has updates."""
        own = tuple(stage.of(plain) for stage in stages)
        if self.update is None or plain.update is None:
            return Channel(plain, own)
        if self.update.adapts_to_blocks:
            # All other stages see entries in the model's order, and sizes are learned from sums with privacy noise.
            own = (LearnSizes(plain.update), *own, SortedEntries(plain.update))
        return Channel(Compressed(plain, self.update, self.update_budget), own)

    def within(self, upload: float) -> Self:
        """A copy of the method whose upload per client and round is this many times d numbers of 32 bits.

        >>> from fedcmoo import FedAvg
        >>> FedAvg().within(0.02).update_budget
        0.02
        """
        return replace(self, update=Rotated(), update_budget=upload)

    def releases(self, round: int) -> Sequence[str]:
        """The contributions that round t, counted from 0, requests from its cohort, each of them once.

        Differential privacy accounts for them before the round starts.

        Raises:
            ValueError: if the method asks other clients than the cohort that was drawn.
        """
        return tuple(self.contributions())

    @abstractmethod
    def round(self, server: Server) -> Round:
        """The server's side of one round."""

    def descend(self, server: Server, direction: Tensor, sums: Sums) -> None:
        """Take the server's step: x <- x - η_s * direction for SGD. The state of the optimizer is part of the server's
        memory. Buffers become the mean of those in the sums of local training, counters those of the newest reply."""
        # Copies, since a checkpoint may still hold the arrays of the last round.
        state = {n.removeprefix(STATE): a.clone() for n, a in server.memory.items() if n.startswith(STATE)}
        self.server.step(server.x, direction, self.server_lr * self.rate(server.round), state)
        server.memory |= {STATE + name: array for name, array in state.items()}
        if "buffers" in sums.totals:
            server.buffers = sums.mean("buffers")
        if "counters" in sums.totals:
            server.counters = sums["counters"]

    def rate(self, t: int) -> float:
        """The factor on the server's learning rate in round t, counted from 0: 1 up to round a, then 1 / (b - a) less
        in every round, down to 1 / (b - a).

        >>> from fedcmoo import FedAvg
        >>> tuple(FedAvg(decay=[2, 6]).rate(t) for t in range(8))
        (1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.25, 0.25)
        """
        if self.decay is None:
            return 1.0
        a, b = self.decay
        return min(1.0, max(1, b - t) / (b - a))

    def initial_weights(self, M: int) -> Vector:
        """The initial weights w^(0): equal, unless a method overrides this."""
        return torch.full((M,), 1 / M, dtype=torch.float64).numpy()


@dataclass(frozen=True, kw_only=True)
class WeightedLoss(Method):
    """A method whose clients train on the weighted loss Σ_k w_k f_{i,k} and upload one update.

    Args:
        drift: the correction of the clients' local steps.
    """

    drift: Named[Drift] = registered(Drift(), DRIFT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drift.plain_steps and self.optimizer != SGD():
            raise ValueError(
                f"{type(self.drift).__name__} needs clients with SGD without momentum, but got {self.optimizer}; "
                "momentum and Adam are for the server then"
            )

    def gradients(self, M: int) -> float:
        return self.local_steps * self.drift.gradients_per_step

    def training(self, reuse_jacobian: bool) -> LocalTraining:
        """Local training on the weighted loss, with this method's settings."""
        reuse = reuse_jacobian and not self.drift.pairs
        return LocalTraining(*self.local, reuse, self.drift)

    def training_message(self, server: Server) -> Message:
        """The message to clients for local training: the weights, and the correction of their steps."""
        return Message(w=torch.from_numpy(server.w), **self.drift.message(server))

    def finish(self, server: Server, sums: Sums) -> None:
        """x <- x - η_s mean_i (x - x_i), by the server's optimizer."""
        update = sums.mean("update")
        self.learn_drift(server, update, sums)
        self.descend(server, update, sums)

    def learn_drift(self, server: Server, update: Tensor, sums: Sums) -> None:
        """Give the mean direction of local steps to the correction."""
        self.drift.learn(server, update / (self.local_steps * self.client_lr), sums.count)


@dataclass(frozen=True)
class LocalTraining(Contribution):
    """K local steps on Σ_k w_k f_{i,k}, or Σ_{k in O_i} w_k (P / P_k) f_{i,k} if clients differ: the update x - x_i.

    The paper's client sends Δ_i = (x - x_i) / (K η_c), and its server multiplies by K η_c again; both factors are
    omitted here, except that a client with a smaller rate η_c / s_i sends s_i (x - x_i) (see `local_weights`).
    """

    lr: float
    steps: int
    batch_size: int | None
    optimizer: Optimizer
    reuse_jacobian: bool
    drift: Drift = field(default=Drift())

    update: ClassVar[str] = "update"

    @property
    def needs_exact_sums(self) -> str | None:
        return type(self.drift).__name__ if self.drift.exact_sums else None

    def compute(self, client: Client, message: Message) -> Arrays:
        fields = {"w": Field((client.problem.M,), torch.float64), **self.drift.fields(client.sizes)}
        check(message, fields, "the server")
        correct = self.drift.start(client, message)
        w, s = local_weights(message["w"].tolist(), client.scales, client.owned)
        reuse = self.reuse_jacobian and not client.shared_only
        change = client.train(w, self.steps, self.lr / s, self.optimizer, self.batch_size, reuse, correct)
        update = change[: client.sizes.d] * s
        self.drift.finish(client, message, update / (self.steps * self.lr))
        return {"update": update, **public_buffers(client)}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"update": Field((sizes.d,), sizes.dtype), **buffer_fields(sizes)}


def reweigh(server: Server, rule: Rule, G: Matrix) -> None:
    """Line 6 of Algorithm 1: set the server's G and w, by the rule.

    A G with infinite entries is dropped: the previous weights stay, and the history notes "gram_dropped".
    Objectives that nobody in the cohort owns have NaN in G: they keep their weights, and the rule divides the rest of
    the sum among the others. With a stateful rule, or a torchjd module (which may have one setting per objective), all
    weights stay unchanged. Random numbers that a rule draws from torch's generator are seeded by (seed, round), and its
    state is in the server's memory, so a resumed run has the same weights.
    """
    if not is_usable(server, G):
        return
    known = is_known(G)
    with seeded(torch.device("cpu"), server.seed, server.round, "weights"):
        if known.all():
            server.G = G
            server.w = weigh(rule, server.w, G, server.memory)
        elif not isinstance(rule, (nn.Module, RememberingWeights)) and server.w[known].sum() > 0:
            server.w = server.w.copy()
            share = server.w[known].sum()
            server.w[known] = share * weigh(rule, server.w[known] / share, G[np.ix_(known, known)], server.memory)


def is_usable(server: Server, G: Matrix) -> bool:
    """Whether a Gram matrix is finite for the known objectives, of which there is at least one.

    If it is not finite (products of finite numbers may overflow), this is noted.
    """
    known = is_known(G)
    if np.isfinite(G[np.ix_(known, known)]).all():
        return bool(known.any())
    server.notes["gram_dropped"] = 1.0
    return False


def is_known(G: Matrix) -> NDArray[np.bool_]:
    """For each objective whether somebody in the cohort owns it: [M]. The others have NaN in their rows and columns."""
    return ~np.isnan(np.diag(G))


def weighted_sum(rows: Tensor, w: Vector) -> Tensor:
    """Σ_k w_k rows_k, [d], of rows [M, d], without the rows of NaN of objectives that nobody in the cohort owns."""
    weights = torch.from_numpy(w).to(rows)
    unknown = rows[:, 0].isnan()
    return rows[~unknown].T @ weights[~unknown] if unknown.any() else rows.T @ weights


def buffer_fields(sizes: Sizes) -> dict[str, Field]:
    """The fields of the model's buffers; empty if the model has no buffers."""
    fields = {
        "buffers": Field((sizes.buffers,), sizes.dtype, clippable=False, not_negative=sizes.variances),
        "counters": Field((sizes.counters,), torch.int64, add="newest", clippable=False),
    }
    return {name: fields[name] for name in fields if fields[name].shape != (0,)}


def public_buffers(client: Client) -> dict[str, Tensor]:
    """The arrays of `buffer_fields`, from the current state of the client's model."""
    public = client.model.public
    return non_empty(buffers=public.buffers, counters=public.counters)


def non_empty(**arrays: Tensor) -> dict[str, Tensor]:
    """The arrays that are not empty."""
    return {name: array for name, array in arrays.items() if array.numel()}
