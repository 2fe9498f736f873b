"""The client's side of a round: gradients of all objectives, and local training on the weighted loss.

A client is a pure function of (seed, round, client), the model it was sent and, with some methods, its own memory: it
gives the same bits on any machine, in any order, and again after a crash. Gradients of an earlier ask of the round are
kept for the first local step if there is room, and recomputed otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType

import torch
from torch import Tensor

from fedcmoo.data.base import Data, batches
from fedcmoo.evaluation import check_finite, diverged, evaluate
from fedcmoo.failures import during
from fedcmoo.first_step import FirstStep
from fedcmoo.messages import all_finite
from fedcmoo.optimizers import Correct, GradientAt, Optimizer
from fedcmoo.ownership import Share
from fedcmoo.parameters import FlatModel, State
from fedcmoo.problem import Problem
from fedcmoo.randomness import Repeat, generator, seeded
from fedcmoo.rounds import Sizes

REUSE_LIMIT = 64 * 2**20
"""A Jacobian of more bytes than this is not kept for the first local step: another weighted pass is cheaper."""

MANY = 4
"""The number of objectives from which shorter backward passes save more than another weighted pass costs."""


@dataclass
class Client:
    """Client i in round t. Engines create one for each ask.

    Attributes:
        problem: the problem, with this client's data.
        model: the worker's only model; the client resets it to `state` when needed.
        sizes: the model's sizes.
        state: the global model and, if the model has a private part, this client's private part.
        seed: of the whole run.
        round: t.
        i: which client.
        first: the results on the first batch of this round and model, if kept from an earlier ask.
        memory: this client's memory from earlier rounds, for methods with stateful clients.
        told: the values that stages at the server send to clients in this ask.
        new_memory: its new memory if the server uses its reply; None for no change.
        new_private: the private part of the model after training, which it keeps if the server uses its reply; None for
            no change.
        share: its weight and the objectives that it owns; None for weight 1 and all of them.
        scales: P / P_k for each objective, of the cohort or, in private runs, of all clients; None if all are 1.
        stream: a suffix of the purposes of random generators; `train_each` sets it for each objective.
        has_trained: whether it has trained: no later ask of the round needs `first`.
    """

    problem: Problem
    model: FlatModel
    sizes: Sizes
    state: State
    seed: int
    round: int
    i: int
    first: FirstStep | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    told: Mapping[str, Tensor] = field(default_factory=dict)
    new_memory: Mapping[str, Tensor] | None = None
    new_private: State | None = None
    share: Share | None = None
    scales: Sequence[float] | None = None
    stream: str = field(default="", init=False)
    has_trained: bool = field(default=False, init=False)

    def __str__(self) -> str:
        return f"client {self.i}"

    @cached_property
    def data(self) -> Data:
        """This client's samples."""
        return self.problem.client(self.i)

    @property
    def weight(self) -> float:
        """p_i."""
        return 1.0 if self.share is None else self.share.weight

    @property
    def owned(self) -> Sequence[int]:
        """O_i: the indices of the objectives that this client owns."""
        return range(self.problem.M) if self.share is None else self.share.objectives

    @property
    def keeps_jacobian(self) -> bool:
        """Whether J is small enough to be kept. It depends on the problem alone, so that all engines agree."""
        return self.problem.M * self.model.x.nbytes <= REUSE_LIMIT

    @property
    def shared_only(self) -> bool:
        """Whether `shared_jacobian` computes gradients of shared parameters only, which the first local step cannot
        reuse: J is too large to be kept, or the backward passes of many objectives become shorter."""
        return not self.keeps_jacobian or (self.model.stops_early and self.problem.M >= MANY)

    def random(self, purpose: str) -> torch.Generator:
        """This client's generator for a purpose in this round."""
        return generator(self.seed, self.round, self.i, f"{purpose}{self.stream}")

    def jacobian(self, batch_size: int | None) -> Tensor:
        """h_i: the stochastic gradients of all objectives at x, one a row: [M, d]. (The paper writes it [d, M].)

        One forward pass and M backward passes over the client's first batch of the round. Rows of objectives that the
        client does not own are zero. Gradients of private parameters follow after the first d columns.
        """
        if self.first is None:
            model, shape = self.model, (self.problem.M, len(self.model.x))
            J = model.x.new_empty(shape) if self.keeps_jacobian else model.rows(*shape)
            self._gradients(J, batch_size)
            self.first = FirstStep(J, model.buffers(), model.counters())
        return self.first.J

    def shared_jacobian(self, batch_size: int | None) -> Tensor:
        """h_i over the shared parameters: [M, d_shared]. A view into the worker's memory, which must not be changed or
        kept. The gradients of other parameters are also computed unless `shared_only`, for the first local step."""
        if not self.shared_only:
            return self.jacobian(batch_size)[:, : self.model.d_shared]
        J = self.model.rows(self.problem.M, self.model.d_shared)
        self._gradients(J, batch_size, self.model.shared)
        return J

    def losses(self) -> Tensor:
        """The objectives' losses averaged over all of this client's data, 0 for those it does not own: float64 [M]."""
        self._reset()
        totals, counts = evaluate(self.problem, self.model, self.data, 0, len(self.data), self.owned)
        return (totals / counts.clamp(min=1))[: self.problem.M]

    @torch.no_grad()
    def batch_losses(self, batch_size: int | None) -> Tensor:
        """The objectives' losses on this client's first batch of the round, as `jacobian` sees it: float64 [M]."""
        self._reset()
        with self._dropout("first"):
            index = next(self._batches(batch_size))
            losses = self._forward(index, self.random("augment first"), self.owned)
        every = torch.zeros(self.problem.M, dtype=torch.float64)
        for k, loss in zip(self.owned, losses, strict=True):
            every[k] = loss
        return every

    def train(
        self,
        w: Sequence[float],
        steps: int,
        lr: float,
        optimizer: Optimizer,
        batch_size: int | None,
        reuse_jacobian: bool = False,
        correct: Correct | None = None,
    ) -> Tensor:
        """Lines 8 to 12 of Algorithm 1: K local steps on Σ_k w_k f_{i,k} from x. Returns x - x_i^(t,K), [d], and the
        change of private parameters after it.

        Objectives of weight zero, and those that the client does not own, are not computed; without others, the
        gradient is zero. With `reuse_jacobian` the first step reuses the gradient of phase one. `correct` may change
        the gradient of every step.
        """
        model = self.model
        optimizer_state: dict[str, Tensor] = {}
        which = [k for k in self.owned if w[k] != 0]
        weights = torch.tensor([w[k] for k in which], dtype=model.x.dtype, device=model.device)
        batches = self._batches(batch_size)
        history: list[Tensor] = []

        def gradient(index: Tensor, augmentation: torch.Generator) -> None:
            model.grad.zero_()
            if not which:
                return
            losses = torch.stack(self._forward(index, augmentation, which))
            torch.dot(weights, losses).backward()  # type: ignore[no-untyped-call]
            history.append(losses.detach())

        def step(augmentation: torch.Generator) -> None:
            compute = partial(gradient, next(batches), augmentation)
            gradient_at = None if correct is None else self._elsewhere(compute, augmentation)
            compute()
            descend(gradient_at)

        def descend(gradient_at: GradientAt | None) -> None:
            if correct is not None:
                correct(model.x, model.grad[: model.d], gradient_at)
            optimizer.step(model.x, model.grad, lr, optimizer_state)

        if which and reuse_jacobian and self.keeps_jacobian:
            J = self.jacobian(batch_size)
            assert self.first is not None
            next(batches)  # phase one's
            model.load(State(self.state.x, self.first.buffers, self.first.counters))
            model.module.train()  # the previous user of the model may have evaluated it
            torch.mv(J[which].T, weights, out=model.grad)
            descend(None)
        else:
            self._reset()
            with self._dropout("first"):
                step(self.random("augment first"))
        augmentation = self.random("augment")
        with self._dropout("rest"):
            for _ in range(steps - 1):
                step(augmentation)
        self._check_finite(which, history or [weights], model.x[None])
        self._keep_private()
        self.has_trained = True
        return self.state.x - model.x

    def train_each(
        self,
        steps: int,
        lr: float,
        optimizer: Optimizer,
        batch_size: int | None,
        corrections: Mapping[int, Correct] = MappingProxyType({}),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """FSMGDA's local training: K steps from x on each objective alone. Returns the M updates [M, d], and the
        buffers (their mean) and counters after them. Each objective has its own batches, so the noise of the updates is
        independent and partly cancels in their weighted sum. Private parameters change by the sum of the objectives'
        changes."""
        M, model = self.problem.M, self.model
        updates = model.x.new_zeros(M, len(model.x))
        buffers = torch.zeros_like(self.state.buffers) if self.owned else self.state.buffers
        for k in self.owned:
            only_k = [float(j == k) for j in range(M)]
            self.stream = f" of objective {k}" if k else ""  # none for 0: FSMGDA with one objective is FedAvg
            updates[k] = self.train(only_k, steps, lr, optimizer, batch_size, correct=corrections.get(k))
            buffers += model.buffers() / len(self.owned)
        self.stream = ""
        counters = model.counters() if self.owned else self.state.counters
        if self.sizes.private and self.owned:
            model.load(State(self.state.x - updates.sum(dim=0), buffers, counters))
            self._keep_private()
        return updates[:, : model.d], buffers[: self.sizes.buffers], counters[: self.sizes.counters]

    def _gradients(self, J: Tensor, batch_size: int | None, of: Sequence[Tensor] | None = None) -> None:
        """Write into J the gradients of x, or of the shared parameters `of`, on the round's first batch."""
        model = self.model
        if len(self.owned) < len(J):
            J.zero_()
        self._reset()
        with self._dropout("first"):
            index = next(self._batches(batch_size))
            losses = self._forward(index, self.random("augment first"), self.owned)
            for k, loss in zip(self.owned, losses, strict=True):
                model.grad.zero_()
                with during(f"in the gradient of objective {self.problem.objectives[k].name!r}"):
                    loss.backward(retain_graph=k != self.owned[-1], inputs=of)  # type: ignore[no-untyped-call]
                J[k] = model.grad[: J.shape[1]]
        self._check_finite(self.owned, [loss.detach() for loss in losses], J)

    def _keep_private(self) -> None:
        if self.sizes.private:
            self.new_private = self.model.private

    def _reset(self) -> None:
        self.model.load(self.state)
        self.model.module.train()

    def _dropout(self, purpose: str) -> AbstractContextManager[None]:
        return seeded(self.model.device, self.seed, self.round, self.i, f"{purpose}{self.stream}")

    def _batches(self, batch_size: int | None) -> Iterator[Tensor]:
        return batches(len(self.data), batch_size, self.random("batches"))

    def _forward(self, index: Tensor, augmentation: torch.Generator, which: Iterable[int]) -> list[Tensor]:
        inputs, targets = self.data.batch(index)
        if self.problem.transform is not None:
            inputs = self.problem.transform(inputs, augmentation)
        return self.problem.losses(self.model(inputs), self.model.move(targets), which)

    def _elsewhere(self, gradient: Callable[[], None], augmentation: torch.Generator) -> GradientAt:
        """A function that returns `gradient` at another point, with the random numbers that it would draw now."""
        model, repeat = self.model, Repeat(self.model.device, augmentation)

        def gradient_at(point: Tensor) -> Tensor:
            here, own = model.state, model.grad.clone()
            model.x[: len(point)].copy_(point)
            with repeat.again():
                gradient()
            there = model.grad[: model.d].clone()
            model.load(here)
            model.grad.copy_(own)
            return there

        return gradient_at

    def _check_finite(self, which: Sequence[int], history: Sequence[Tensor], values: Tensor) -> None:
        """Check for NaN and infinite values once, at the end of a phase, so that steps need not wait for it; `history`
        are the losses of the n objectives `which`, one after the other or [n] in each step (see `diverged`)."""
        losses = torch.stack(list(history)) if history else values.new_zeros(0)
        if not (all_finite(losses) and all_finite(values)):
            check_finite(self.problem, self.data, str(self))
            raise diverged(self.problem, which, losses, values, f"round {self.round + 1} at {self}")
