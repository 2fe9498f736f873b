"""Compare Gram estimators: while a model trains, each estimates the same Gram matrix with the same upload.

The Gram estimator `Compared` trains an ordinary run with the exact matrix and measures the others in between.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedcmoo.bench.gram_result import GramBench, GramRow
from fedcmoo.bench.memory import peak_bytes, reset_peak
from fedcmoo.bench.timed import Clock, Timed
from fedcmoo.callbacks import Callback
from fedcmoo.client import Client
from fedcmoo.compression import Compressor, Quantizer, RandomizedSVD, RandomMask, TopK, budget_bytes
from fedcmoo.contributions import Arrays, Channel
from fedcmoo.engines import Local
from fedcmoo.gram import Exact, Gram, OneWay, Sketch, SumOfGrams, TwoWay, TwoWayAsRun
from fedcmoo.gram.base import Estimate
from fedcmoo.history import Record
from fedcmoo.messages import Message
from fedcmoo.methods import Method
from fedcmoo.methods.gram_weighted import GramWeighted
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes, drive
from fedcmoo.settings import Table
from fedcmoo.sums import Sums
from fedcmoo.training import fit
from fedcmoo.types import Matrix
from fedcmoo.validation import at_least_one
from fedcmoo.weights.find_weights import unit_scale
from fedcmoo.worker import AskClients, Request, Worker

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


def entries(budgets: Sequence[float]) -> list[Entry]:
    """Every estimator of the cohort's Gram matrix, at every budget.

    ApproxGramJacobian-T is excluded, since it asks other clients and estimates another matrix. Top-k "as counted" has
    the number of entries of the authors' accounting: they count a value as 16 bits, so that 32-bit values at an upload
    of d are compared with 0.875 d (M = 2) entries of top-k instead of 0.9375 d.
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
        half = (TopK(values="float16"), budget / 2)
        found.append(Entry("one-way top-k, as counted", budget, OneWay(*half)))
        found.append(Entry("two-way top-k, as run and counted", budget, TwoWayAsRun(*half)))
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
    method: Method | str,
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
    config: Table | None = None,
) -> GramBench:
    """Train, and compare every estimator at equal budgets with the exact Gram matrix of the same cohort's Jacobians.

    Args:
        problem: model, objectives and data.
        method: the training method, FedCMOO or FedCMOOPref; its Gram estimator is replaced by the exact one.
        rounds: the number of rounds.
        every: rounds from one comparison to the next.
        budgets: uploads in multiples of d numbers.
        only: compare estimators whose name contains one of these; all of them by default. Large models recompute their
            Jacobians for every estimator.
        clients_per_round, seed, callbacks, folder, resume, config: as in `fit`.
    """
    at_least_one(every=every)
    if not isinstance(method, GramWeighted):
        raise ValueError(f"the method must be one that estimates a Gram matrix, but got {type(method).__name__}")
    chosen = [entry for entry in entries(budgets) if not only or any(part in entry.name for part in only)]
    if not chosen:
        raise ValueError(f"only must be parts of estimators' names, but none contains {' or '.join(map(repr, only))}")
    sizes = Sizes.of(problem.flat_model(), problem.M)
    if not any(possible(entry, sizes) for entry in chosen):
        raise ValueError(f"budgets must be enough for one of the estimators chosen, but got {list(budgets)}")
    measured = [entry for entry in chosen if possible(entry, sizes)]
    compared = Compared(problem, seed, measured, every, method.batch_size)
    result = fit(
        problem,
        replace(method, gram=compared, gram_every=1, gram_batch_size=None, trips=2),
        rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        engine=Local(),  # the estimators are timed, so they run in this process, one after the other
        evaluate_every=rounds,
        callbacks=callbacks,
        folder=folder,
        resume=resume,
        config=config,
    )
    records = [record for record in result.history if (record.round - 1) % every == 0]
    rows = [_row(entry, records) for entry in measured]
    return GramBench(problem.name, sizes.d_shared, sizes.M, rounds, rows)


def _row(entry: Entry, records: Sequence[Record]) -> GramRow:
    clients = sum(len(record.cohort) for record in records)

    def noted(what: str) -> list[float]:
        return [record.notes[note] for record in records if (note := _note(entry, what)) in record.notes]

    return GramRow(
        estimator=entry.name,
        budget=entry.budget,
        nrmse=noted("nrmse"),
        normalized=noted("normalized"),
        upload=sum(noted("upload")) / len(records),
        download=sum(noted("download")) / len(records),
        encode_seconds=sum(noted("encode")) / clients,
        combine_seconds=sum(noted("combine")) / len(records),
        peak_bytes=int(max(noted("peak"))) if noted("peak") else None,
    )


def _note(entry: Entry, what: str) -> str:
    """The name of a measurement in the history's notes, which store it with its round even if a run is resumed."""
    return f"{entry.label}: {what}"


class Compared(Exact):
    """The exact Gram matrix, and every few rounds all `entries` measured against it.

    The entries use a separate worker, so that their time and bytes are not part of the run.
    """

    def __init__(
        self, problem: Problem, seed: int, entries: Sequence[Entry], every: int, batch_size: int | None
    ) -> None:
        self.entries, self.every = entries, every
        self.jacobian, self.encode = Clock(), Clock()  # of all clients together
        channels = {
            f"{entry.label}/{name}": Channel(WithoutJacobian(contribution, self.encode, batch_size, self.jacobian))
            for entry in entries
            for name, contribution in entry.gram.contributions(batch_size).items()
        }
        self.worker = Worker(problem, channels, seed)

    def __repr__(self) -> str:
        return f"Compared({[entry.label for entry in self.entries]}, every={self.every})"

    def estimate(self, server: Server, *others: str) -> Estimate:
        exact, sums = yield from super().estimate(server, *others)
        if server.round % self.every == 0:
            for entry in self.entries:
                self._measure(entry, exact, server)
        return exact, sums

    def _measure(self, entry: Entry, exact: Matrix, server: Server) -> None:
        self.jacobian.seconds = self.encode.seconds = 0.0
        traffic = {"upload": 0.0, "download": 0.0}  # bytes of one client
        before = reset_peak()
        start = time.perf_counter()
        G, _ = drive(entry.gram.estimate(server), lambda ask: self._ask(ask, entry, server, traffic))
        seconds = time.perf_counter() - start
        peak = peak_bytes()
        measured = {
            "nrmse": nrmse(G, exact),
            "normalized": nrmse(unit_scale(G), unit_scale(exact)),
            **traffic,
            "encode": self.encode.seconds,
            "combine": seconds - self.encode.seconds - self.jacobian.seconds,
        }
        if before is not None and peak is not None:
            measured["peak"] = max(0.0, peak - before)
        server.notes |= {_note(entry, what): value for what, value in measured.items()}

    def _ask(self, ask: Ask, entry: Entry, server: Server, traffic: dict[str, float]) -> Sums:
        messages = {f"{entry.label}/{name}": message for name, message in ask.messages.items()}
        request = Request(server.round, server.model.version, messages)
        sums = AskClients(request, server.cohort).run(self.worker, server.model)
        traffic["upload"] += sums.uploaded / sums.count - len(f"{entry.label}/")  # which the first array's name has
        traffic["download"] += ask.size
        return sums.part(entry.label)


@dataclass(frozen=True)
class WithoutJacobian(Timed):
    """A contribution timed without the Jacobian, which takes the same time for all estimators."""

    batch_size: int | None
    jacobian: Clock

    def compute(self, client: Client, message: Message) -> Arrays:
        self.jacobian.time(lambda: client.jacobian(self.batch_size))
        return super().compute(client, message)


def nrmse(G: Matrix, exact: Matrix) -> float:
    """||G - exact|| / ||exact|| in the Frobenius norm."""
    return float(np.linalg.norm(G - exact) / np.linalg.norm(exact))
