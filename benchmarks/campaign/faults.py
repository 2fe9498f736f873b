"""Runs with many faulty clients on every engine: they must finish, with every failure recorded and equal bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from campaign.flower import run_on_flower
from campaign.loopback import Loopback
from campaign.memory import private_bytes
from campaign.outcome import Outcome
from campaign.problem import FAULT, FaultyClients, small_problem
from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.engines import Engine, Local, Pool, Ray
from fedcmoo.engines.remote import Remote
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.failures import LONGEST
from fedcmoo.history import Record
from fedcmoo.methods import FedCMOO, Method
from fedcmoo.randomness import generator
from fedcmoo.training import fit

METHOD = FedCMOO(client_lr=0.05, local_steps=2, batch_size=8)
ONE_TRIP = replace(METHOD, trips=1)
"""For Flower, where each message to a node costs seconds."""
COHORT = 10
FAULTS = FaultyClients()

ENGINES: Mapping[str, Callable[[Path, int], Engine]] = {
    "local": lambda folder, seed: Local(),
    "pool": lambda folder, seed: Pool(workers=2),
    "ray": lambda folder, seed: Ray(workers=2),
    # The engine of Flower, with all that a federation encodes, checks and decodes, without Flower's own processes.
    "nodes": lambda folder, seed: Remote(Loopback(folder, small_problem(seed), METHOD, nodes=3, stages=[FAULTS])),
}
FLOWER = "flower"

MAX_GROWTH = 5.0
"""The largest growth of memory, in percent, over at least `LONG` rounds."""
LONG = 100


@dataclass
class FaultyRun:
    """The history, the model and the memory in bytes after each round of a run with faulty clients."""

    history: Sequence[Record] = ()
    model: Mapping[str, Tensor] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """The growth of memory in percent, from the second tenth of the rounds to the last."""
        tenth = max(1, len(self.memory) // 10)
        start = median(self.memory[tenth:][:tenth] or self.memory)
        return 100 * (median(self.memory[-tenth:]) / start - 1) if start else 0.0


class Watch(Callback):
    """Measures the memory of this process and its workers after each round."""

    def __init__(self, memory: list[int]) -> None:
        self.memory = memory

    def after_round(self, record: Record) -> None:
        self.memory.append(private_bytes())


def faulty_clients(name: str, rounds: int, seed: int) -> Outcome:
    """Rounds with faulty clients on one engine.

    A round holds if exactly the faulty clients are recorded as failed, and its numbers are those of the local engine.
    No round counts if the model differs from the local engine's, is not finite, or memory grew too much.
    """
    run = _run_on_flower(rounds, seed) if name == FLOWER else _run(name, rounds, seed)
    reference = _run("local", rounds, seed, ONE_TRIP if name == FLOWER else METHOD)
    held = sum(_holds(mine, yours, seed) for mine, yours in zip(run.history, reference.history, strict=False))
    broken = [f"{rounds - held} rounds"] if held < rounds else []
    if not all(torch.isfinite(value).all() for value in run.model.values()):
        broken.append("the model is not finite")
    if not all(torch.equal(value, reference.model[key]) for key, value in run.model.items()):
        broken.append("the model differs from that of the local engine")
    if rounds >= LONG and run.growth > MAX_GROWTH:
        broken.append(f"memory grew by more than {MAX_GROWTH:g} %")
    counts = {
        "failures": sum(len(record.failures) for record in run.history),
        "undone": sum(record.undone is not None for record in run.history),
        "memory %": round(run.growth, 2),
    }
    return Outcome(f"faulty clients on {name}", rounds, 0 if broken else held, counts, broken)


def _holds(mine: Record, yours: Record, seed: int) -> bool:
    faulty = {str(i) for i in mine.cohort if FAULTS.strikes(generator(seed, mine.round - 1, i, FAULT))}
    readable = all(why.isprintable() and 0 < len(why) <= LONGEST for why in mine.failures.values())
    return set(mine.failures) == faulty and readable and _numbers(mine) == _numbers(yours)


def _numbers(record: Record) -> Record:
    """A record without times, and without the texts of failures, which nodes shorten."""
    return replace(record.without_time(), failures=dict.fromkeys(record.failures, ""))


@cache
def _run(name: str, rounds: int, seed: int, method: Method = METHOD) -> FaultyRun:
    run = FaultyRun()
    with tempfile.TemporaryDirectory() as folder:
        result = fit(
            small_problem(seed),
            method,
            rounds,
            clients_per_round=COHORT,
            seed=seed,
            engine=ENGINES[name](Path(folder) / "nodes", seed),
            evaluate_every=max(1, rounds // 4),
            callbacks=[Watch(run.memory)],
            folder=Path(folder) / "run",
            stages=[FAULTS],
            on_failure="skip",
        )
    run.history, run.model = result.history, result.model.state_dict()
    return run


def _run_on_flower(rounds: int, seed: int) -> FaultyRun:
    config = RunConfig(
        problem=OwnProblem(source="campaign.problem:small_problem"),
        method=ONE_TRIP,
        rounds=rounds,
        clients_per_round=COHORT,
        seed=seed,
        evaluate_every=max(1, rounds // 4),
    )
    run = FaultyRun()
    with tempfile.TemporaryDirectory(prefix="fedcmoo-") as folder:
        run.history, run.model = run_on_flower(Path(folder), config, run.memory.append)
    return run
