"""Runs with many faulty clients on every engine: they must finish, with every failure recorded and equal bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from fedcmoo.bench.memory import resident_bytes
from fedcmoo.bench.reliability.outcome import Outcome
from fedcmoo.bench.reliability.problem import FaultyClients, small_problem
from fedcmoo.callbacks import Callback
from fedcmoo.engines import Engine, Local, Pool, Ray
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.loopback import Loopback
from fedcmoo.failures import LONGEST
from fedcmoo.history import Record
from fedcmoo.methods import FedCMOO
from fedcmoo.result import Result
from fedcmoo.training import fit

METHOD = FedCMOO(client_lr=0.05, local_steps=2, batch_size=8)
COHORT = 10

ENGINES: Mapping[str, Callable[[Path, int], Engine]] = {
    "local": lambda folder, seed: Local(),
    "pool": lambda folder, seed: Pool(workers=2),
    "ray": lambda folder, seed: Ray(workers=2),
    # The engine of Flower, with all that a federation encodes, checks and decodes, without Flower's own processes.
    "nodes": lambda folder, seed: Remote(
        Loopback(folder, small_problem(seed=seed), METHOD, nodes=3, stages=[FaultyClients()])
    ),
}


class Watch(Callback):
    """The memory of this process after each round."""

    def __init__(self) -> None:
        self.memory: list[int] = []

    def after_round(self, record: Record) -> None:
        self.memory.append(resident_bytes())

    @property
    def growth(self) -> float:
        """In percent, from a tenth of the rounds to the end."""
        start = self.memory[len(self.memory) // 10]
        return 100 * (self.memory[-1] / start - 1) if start else 0.0


def faulty_run(name: str, rounds: int, seed: int) -> tuple[Result, Watch]:
    """A run on one engine in which 41 % of the clients fail."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        result = fit(
            small_problem(seed=seed),
            METHOD,
            rounds,
            clients_per_round=COHORT,
            seed=seed,
            engine=ENGINES[name](Path(folder) / "nodes", seed),
            evaluate_every=max(1, rounds // 4),
            callbacks=[watch],
            folder=Path(folder) / "run",
            stages=[FaultyClients()],
            on_failure="skip",
        )
    return result, watch


def faulty_clients(name: str, rounds: int, seed: int) -> Outcome:
    """Rounds with faulty clients on one engine; a round holds if its failures are recorded and its model is finite."""
    result, watch = faulty_run(name, rounds, seed)
    finite = all(torch.isfinite(value).all() for value in result.model.state_dict().values())
    recorded = [record for record in result.history if all(_is_recorded(why) for why in record.failures.values())]
    failures = sum(len(record.failures) for record in result.history)
    undone = sum(record.undone is not None for record in result.history)
    counts = {"failures": failures, "undone": undone, "memory %": round(watch.growth, 2)}
    return Outcome(f"faulty clients on {name}", rounds, len(recorded) if finite and failures else 0, counts)


def _is_recorded(why: str) -> bool:
    return why.isprintable() and 0 < len(why) <= LONGEST


def same_bits(names: tuple[str, ...], rounds: int, seed: int) -> Outcome:
    """The same faulty run on all engines: histories and models must be equal bit for bit."""
    reference, _ = faulty_run("local", rounds, seed)
    broken = []
    for name in names:
        other, _ = faulty_run(name, rounds, seed)
        parts = zip(other.model.state_dict().values(), reference.model.state_dict().values(), strict=True)
        same_model = all(torch.equal(mine, yours) for mine, yours in parts)
        if not same_model or _numbers(other) != _numbers(reference):
            broken.append(f"{name} differs from local")
    return Outcome("equal bits on " + ", ".join(names), len(names), len(names) - len(broken), broken=broken)


def _numbers(result: Result) -> list[object]:
    """All of a history but times, and texts of failures, which nodes shorten."""
    return [replace(record.without_time(), failures=dict.fromkeys(record.failures, "")) for record in result.history]
