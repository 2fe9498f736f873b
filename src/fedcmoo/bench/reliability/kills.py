"""Runs that are killed at random moments and resumed: the result must be that of a run that was never interrupted."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from pathlib import Path

import torch

from fedcmoo.bench.reliability.faults import METHOD
from fedcmoo.bench.reliability.outcome import Outcome
from fedcmoo.bench.reliability.problem import small_problem
from fedcmoo.engines import Local
from fedcmoo.history import read_history
from fedcmoo.run import HISTORY
from fedcmoo.run_folder import MODEL, holds_run
from fedcmoo.training import fit

ROUNDS = 12


def train(folder: Path, seed: int) -> None:
    """The run that is killed; it goes on where the one before it stopped."""
    fit(
        small_problem(seed=seed),
        METHOD,
        ROUNDS,
        clients_per_round=4,
        seed=seed,
        engine=Local(),
        folder=folder,
        checkpoint_every=2,
        resume=holds_run(folder),
    )


def kills(count: int, seed: int) -> Outcome:
    """Kill `count` runs with SIGKILL, each at a random moment and some of them several times, and resume them."""
    chance = random.Random(seed)
    torch.set_num_threads(1)  # a fork of a process with more of them may hang
    with tempfile.TemporaryDirectory() as parent:
        reference = Path(parent) / "reference"
        seconds = _timed(reference, seed)
        killed = finished = run = 0
        broken: list[str] = []
        while killed < count:
            folder, run = Path(parent) / f"run-{run}", run + 1
            while _is_killed(folder, seed, chance.uniform(0, 0.9 * seconds)):
                killed += 1
            finished += 1
            if not _equal(folder, reference):
                broken.append(f"run {run} differs from an uninterrupted one")
        counts = {"kills": killed, "seconds of a whole run": round(seconds, 2)}
    return Outcome("kills and equal resumes", finished, finished - len(broken), counts, broken[:3])


def _timed(folder: Path, seed: int) -> float:
    start = time.monotonic()
    _is_killed(folder, seed, after=None)
    return time.monotonic() - start


def _is_killed(folder: Path, seed: int, after: float | None) -> bool:
    """Run in a fork, which starts at once, until it ends or is killed; returns which."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(folder, seed))
    process.start()
    process.join(after)
    process.kill()
    process.join()
    return process.exitcode != 0


def _equal(mine: Path, yours: Path) -> bool:
    histories = [[record.without_time() for record in read_history(folder / HISTORY)] for folder in (mine, yours)]
    return histories[0] == histories[1] and (mine / MODEL).read_bytes() == (yours / MODEL).read_bytes()
