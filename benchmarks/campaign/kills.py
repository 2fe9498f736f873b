"""Runs that are killed at random moments and resumed: the result must be that of a run that was never interrupted."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
from pathlib import Path

import torch

from campaign.faults import METHOD
from campaign.outcome import Outcome
from campaign.problem import small_problem
from fedcmoo.engines import Local
from fedcmoo.history import read_history
from fedcmoo.run import HISTORY
from fedcmoo.run_folder import MODEL, holds_run
from fedcmoo.training import fit

ROUNDS = 12


def train(folder: Path, seed: int) -> None:
    """The run that is killed; it goes on where the one before it stopped."""
    fit(
        small_problem(seed),
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
    """Kill runs with SIGKILL `count` times in all, each at a random moment and some of them again and again.

    After each kill, a copy of the run is resumed to its end: it must be equal to the run that was never interrupted.
    """
    chance = random.Random(seed)
    torch.set_num_threads(1)  # a fork of a process with more of them may hang
    with tempfile.TemporaryDirectory() as parent:
        reference, folder, copy = (Path(parent) / name for name in ("reference", "run", "copy"))
        seconds = _timed(reference, seed)
        killed = runs = 0
        broken: list[str] = []
        while killed < count:
            runs += 1
            while killed < count and _is_killed(folder, seed, chance.uniform(0, 0.9 * seconds)):
                killed += 1
                folder.mkdir(exist_ok=True)  # if the kill came before
                shutil.copytree(folder, copy)
                if _is_killed(copy, seed, after=None) or not _equal(copy, reference):
                    broken.append(f"after kill {killed} the resumed run differs from an uninterrupted one")
                shutil.rmtree(copy)
            shutil.rmtree(folder, ignore_errors=True)
        counts = {"runs": runs, "seconds of a whole run": round(seconds, 2)}
    return Outcome("kills and equal resumes", killed, killed - len(broken), counts, broken[:3])


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
