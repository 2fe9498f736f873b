"""One worker: one model in memory, on which any number of clients take turns. Every engine runs workers and nothing
else."""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fedcmoo.client import Client, FirstStep, State
from fedcmoo.evaluation import BATCH, evaluate
from fedcmoo.messages import Message
from fedcmoo.parameters import FlatModel, Precision
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes, Sums, Task

KEEP_LIMIT = 512 * 2**20
"""Bytes of phase-one gradients that one worker keeps; what does not fit is computed again."""


class Worker:
    """Answers asks for any client, adding the replies up.

    Args:
        problem: the problem; the worker makes its own copy of the model.
        tasks: what to do in each phase, from the method.
        seed: of the whole run.
        device: where the model computes.
        precision: what the model computes in.
    """

    def __init__(
        self,
        problem: Problem,
        tasks: Mapping[str, Task],
        seed: int,
        device: str = "cpu",
        precision: Precision = "float32",
    ) -> None:
        keep_freed_memory()
        self.problem = problem
        self.tasks = tasks
        self.seed = seed
        self.model = FlatModel(copy.deepcopy(problem.model).to(device), problem.is_shared, precision)
        self.sizes = sizes_of(problem, self.model)
        self._kept: dict[int, FirstStep] = {}
        self._kept_round = -1

    def answer(self, state: State, round: int, phase: str, message: Message, i: int) -> Message:
        """The reply of client i, as it goes over the wire."""
        if round != self._kept_round:
            self._kept, self._kept_round = {}, round
        client = Client(
            self.problem,
            self.model,
            state.to(self.model.device),
            self.seed,
            round,
            i,
            self._kept.pop(i, None),
        )
        reply = self.tasks[phase].answer(client, message).cpu()
        if client.first is not None and self._has_room(client.first):
            self._kept[i] = client.first
        return reply

    def _has_room(self, first: FirstStep) -> bool:
        size = first.J.numel() * first.J.element_size()
        return (len(self._kept) + 1) * size <= KEEP_LIMIT


class Job(Protocol):
    """A piece of a round's work that a worker does alone: a block of clients, or a part of an evaluation."""

    def run(self, worker: Worker, state: State) -> Sums:
        """Do it."""


@dataclass(frozen=True)
class AskClients:
    """Ask some clients one after the other and add up what they reply."""

    round: int
    phase: str
    message: Message
    clients: tuple[int, ...]

    def run(self, worker: Worker, state: State) -> Sums:
        sums = Sums()
        task = worker.tasks[self.phase]
        for i in self.clients:
            reply = worker.answer(state, self.round, self.phase, self.message, i)
            sums.add(task.accept(reply, self.message, worker.sizes, f"client {i}"), reply.nbytes)
        return sums


@dataclass(frozen=True)
class Evaluate:
    """Losses and metrics of the model on part of the test or validation data."""

    split: str
    start: int

    def run(self, worker: Worker, state: State) -> Sums:
        data = getattr(worker.problem, self.split)
        worker.model.load(state.x, state.buffers, state.counters)
        stop = min(self.start + BATCH, len(data))
        sums = Sums()
        sums.add({"totals": evaluate(worker.problem, worker.model, data, self.start, stop)}, 0)
        return sums


def sizes_of(problem: Problem, model: FlatModel) -> Sizes:
    """The numbers that messages' shapes are made of."""
    buffers, counters = model.buffers().numel(), model.counters().numel()
    return Sizes(model.d, model.d_shared, problem.M, buffers, counters, model.x.dtype)


def state_of(model: FlatModel) -> State:
    """A copy of the model's present state."""
    return State(model.x.detach().clone(), model.buffers().clone(), model.counters().clone())


def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed, up to a gigabyte, for the next allocation.

    By default it gives large blocks back to the system, which has to provide them anew, page by page, at every step:
    for the activations of a small convolutional network that is a fifth of the time.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 2**30)
        mallopt(m_mmap_threshold, 2**29) or mallopt(m_mmap_threshold, 2**25)  # older versions allow no more than this
