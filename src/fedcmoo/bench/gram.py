"""Gram estimators side by side: while a model trains, each estimates the same Gram matrix at the same upload.

The estimators ride along as one Gram estimator, `Compared`, in a usual run: its exact estimate drives the training, and
the others use the Jacobians that it left with the clients.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedcmoo.bench.gram_result import GramBench, Row
from fedcmoo.bench.memory import PeakMemory
from fedcmoo.callbacks import Callback
from fedcmoo.client import Client, FirstStep
from fedcmoo.compression import Compressor, Quantizer, RandomizedSVD, RandomMask, TopK
from fedcmoo.engines import Local
from fedcmoo.gram import Estimate, Exact, Gram, OneWay, Sketch, SumOfGrams, TwoWay, TwoWayAsRun
from fedcmoo.gram.base import budget_bytes
from fedcmoo.history import Record
from fedcmoo.messages import Message
from fedcmoo.methods import FedCMOO, FedCMOOPref
from fedcmoo.parameters import FlatModel
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes, Sums, Task
from fedcmoo.training import fit
from fedcmoo.types import Matrix
from fedcmoo.weights.find_weights import unit_scale
from fedcmoo.worker import sizes_of

BUDGETS = (1.0, 0.3, 0.1, 0.03, 0.01)


@dataclass(frozen=True)
class Entry:
    """An estimator in the comparison, at a budget in multiples of d numbers."""

    name: str
    budget: float
    gram: Gram

    @property
    def label(self) -> str:
        return f"{self.name} @ {self.budget:g}"


@dataclass
class Cost:
    """The seconds of an estimator in a round: of all clients, and of the server."""

    encode: float = 0.0
    combine: float = 0.0


def entries(budgets: Sequence[float]) -> list[Entry]:
    """Every estimator of the cohort's Gram matrix, at every budget.

    ApproxGramJacobian-T is not among them: it asks other clients, and estimates another matrix.
    """
    compressors: dict[str, Compressor] = {
        "randomized SVD": RandomizedSVD(),
        "random mask": RandomMask(),
        "top-k": TopK(),
        "quantizer": Quantizer(),
    }
    found = [Entry("sum of client Grams", 0.0, SumOfGrams())]
    for budget in budgets:
        for name, compressor in compressors.items():
            found.append(Entry(f"one-way {name}", budget, OneWay(compressor, budget)))
            if name != "quantizer":
                found.append(Entry(f"two-way {name}", budget, TwoWay(compressor, budget)))
                found.append(Entry(f"two-way {name}, as run", budget, TwoWayAsRun(compressor, budget)))
        found.append(Entry("sketch, 32 bits", budget, Sketch(budget, bits=32)))
        found.append(Entry("sketch", budget, Sketch(budget)))
    return found


def possible(entry: Entry, sizes: Sizes) -> bool:
    """Whether the budget is enough for the estimator's compressor."""
    if not isinstance(entry.gram, (OneWay, TwoWay)):
        return True
    shape = (sizes.M, sizes.d_shared)
    return entry.gram.compressor.least(shape) <= budget_bytes(entry.gram.budget, sizes.d_shared)


def bench_gram(
    problem: Problem,
    method: FedCMOO | FedCMOOPref,
    rounds: int = 20,
    *,
    every: int = 1,
    budgets: Sequence[float] = BUDGETS,
    only: Sequence[str] = (),
    clients_per_round: int | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    folder: Path | None = None,
    resume: bool = False,
) -> GramBench:
    """Train, and compare every estimator at equal budgets with the exact Gram matrix of the same cohort's Jacobians.

    Args:
        problem: model, objectives and data.
        method: what trains; its own Gram estimator is replaced by the exact one.
        rounds: how long.
        every: rounds from one comparison to the next.
        budgets: uploads in multiples of d numbers.
        only: compare estimators whose name contains one of these; all of them by default. Large models compute their
            Jacobians anew for every estimator.
        clients_per_round, seed, callbacks, folder, resume: as in `fit`.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, but got {every}")
    chosen = [entry for entry in entries(budgets) if not only or any(part in entry.name for part in only)]
    if not chosen:
        raise ValueError(f"only must be parts of estimators' names, but none contains {' or '.join(map(repr, only))}")
    sizes = sizes_of(problem, FlatModel(copy.deepcopy(problem.model), problem.is_shared))
    if not any(possible(entry, sizes) for entry in chosen):
        raise ValueError(f"budgets must be enough for one of the estimators chosen, but got {list(budgets)}")
    compared = Compared(tuple(chosen), every)
    training = replace(method, gram_every=1) if isinstance(method, FedCMOO) else method
    result = fit(
        problem,
        replace(training, gram=compared),
        rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        engine=Local(),  # the estimators are timed, so they run here and one after the other
        evaluate_every=rounds,
        callbacks=callbacks,
        folder=folder,
        resume=resume,
    )
    measured = [record for record in result.history if (record.round - 1) % every == 0]
    rows = [_row(entry, measured) for entry in chosen if possible(entry, sizes)]
    return GramBench(problem.name, sizes.d_shared, sizes.M, rounds, rows)


def _row(entry: Entry, measured: Sequence[Record]) -> Row:
    phases = [phase for phase in measured[0].up if phase.startswith(entry.label + "/")]
    clients = sum(len(record.cohort) for record in measured)

    def noted(what: str) -> list[float]:
        return [record.notes[note] for record in measured if (note := _note(entry, what)) in record.notes]

    return Row(
        estimator=entry.name,
        budget=entry.budget,
        nrmse=noted("nrmse"),
        normalized=noted("normalized"),
        upload=sum(record.up[phase] for record in measured for phase in phases) / clients,
        download=sum(record.down[phase] for record in measured for phase in phases) / clients,
        encode_seconds=sum(noted("encode")) / clients,
        combine_seconds=sum(noted("combine")) / len(measured),
        peak_bytes=int(max(noted("peak"))) if noted("peak") else None,
    )


def _note(entry: Entry, what: str) -> str:
    """The name of a measurement in the history's notes: so it is kept with its round, also where a run is resumed."""
    return f"{entry.label}: {what}"


@dataclass(frozen=True)
class Compared:
    """The exact Gram matrix, and every so many rounds all `entries` beside it."""

    entries: tuple[Entry, ...]
    every: int
    costs: dict[str, Cost] = field(default_factory=dict, repr=False, compare=False)

    sums_only: ClassVar[bool] = False
    asks_cohort: ClassVar[bool] = True

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        tasks = {f"exact/{phase}": task for phase, task in Exact().tasks(batch_size).items()}
        for entry in self.entries:
            for phase, task in entry.gram.tasks(batch_size).items():
                tasks[f"{entry.label}/{phase}"] = Timed(task, batch_size, self, entry.label)
        return tasks

    def estimate(self, server: Server) -> Estimate:
        exact = yield from _renamed(Exact(), "exact", server)
        if server.round % self.every == 0:
            for entry in self.entries:
                if possible(entry, server.sizes):
                    yield from self._measure(entry, exact, server)
        return exact

    def _measure(self, entry: Entry, exact: Matrix, server: Server) -> Generator[Ask, Sums, None]:
        cost = self.costs[entry.label] = Cost()
        with PeakMemory() as peak:
            G = yield from _renamed(entry.gram, entry.label, server, cost)
        server.notes[_note(entry, "nrmse")] = nrmse(G, exact)
        server.notes[_note(entry, "normalized")] = nrmse(unit_scale(G), unit_scale(exact))
        server.notes[_note(entry, "encode")] = cost.encode
        server.notes[_note(entry, "combine")] = cost.combine
        if peak.bytes is not None:
            server.notes[_note(entry, "peak")] = float(peak.bytes)


def _renamed(gram: Gram, label: str, server: Server, cost: Cost | None = None) -> Estimate:
    """An estimate whose phases bear the label; the server's own part of it is timed."""
    steps = gram.estimate(server)
    sums: Sums | None = None
    while True:
        start = time.process_time()
        try:
            ask = next(steps) if sums is None else steps.send(sums)
        except StopIteration as end:
            G: Matrix = end.value
            return G
        finally:
            if cost is not None:
                cost.combine += time.process_time() - start
        sums = yield replace(ask, phase=f"{label}/{ask.phase}")


@dataclass(frozen=True)
class Timed(Task):
    """A task whose two sides are timed. The Jacobian is there before the clock starts."""

    task: Task
    batch_size: int | None
    compared: Compared
    label: str

    def answer(self, client: Client, message: Message) -> Message:
        J = client.jacobian(self.batch_size)
        if client.first is None:  # too large to be kept for training, but for this answer it stays
            client.first = FirstStep(J, client.model.buffers(), client.model.counters())
        start = time.process_time()
        reply = self.task.answer(client, message)
        self.compared.costs[self.label].encode += time.process_time() - start
        if not client.keeps_jacobian:
            client.first = None
        return reply

    def accept(self, reply: Message, message: Message, sizes: Sizes, sender: str) -> Mapping[str, Tensor]:
        start = time.process_time()
        arrays = self.task.accept(reply, message, sizes, sender)
        self.compared.costs[self.label].combine += time.process_time() - start
        return arrays


def nrmse(G: Matrix, exact: Matrix) -> float:
    """||G - exact|| / ||exact|| in the Frobenius norm."""
    return float(np.linalg.norm(G - exact) / np.linalg.norm(exact))
