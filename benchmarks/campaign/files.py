"""Damaged files of a run: every flipped bit of a checkpoint is noticed, and damage gives the library's own errors."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from campaign.fuzz import mutated
from campaign.kills import ROUNDS, train
from campaign.outcome import Outcome
from fedcmoo.checkpoint import Checkpoint
from fedcmoo.files import DamagedError
from fedcmoo.history import read_history
from fedcmoo.run import CONFIG, HISTORY
from fedcmoo.run_folder import MODEL, NEWEST, PREVIOUS
from fedcmoo.settings import SettingsError, read_toml


def flipped_bits(count: int, resumes: int, seed: int) -> Outcome:
    """Flip one random bit of a checkpoint, `count` times; in `resumes` of them the run goes on from the one before."""
    chance, broken = random.Random(seed), list[str]()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        train(folder, seed)
        data, model = (folder / NEWEST).read_bytes(), (folder / MODEL).read_bytes()
        previous = (folder / PREVIOUS).read_bytes()
        for n in range(count):
            bit = chance.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            if not _is_noticed(bytes(flipped)):
                broken.append(f"bit {bit} of {8 * len(data)} was not noticed")
            if n < resumes:
                (folder / NEWEST).write_bytes(flipped)
                (folder / PREVIOUS).write_bytes(previous)
                train(folder, seed)
                if (folder / MODEL).read_bytes() != model or len(read_history(folder / HISTORY)) != ROUNDS:
                    broken.append(f"after bit {bit} the resumed run differs")
    return Outcome("flipped bits of checkpoints", count, count - len(broken), {"resumed": resumes}, broken[:3])


def _is_noticed(data: bytes) -> bool:
    try:
        Checkpoint.decode(data)
    except DamagedError:
        return True
    return False


def _read_checkpoint(path: Path) -> Checkpoint:
    return Checkpoint.decode(path.read_bytes())


def damaged_files(count: int, seed: int) -> Outcome:
    """Fuzz configurations, histories and checkpoints: each is read as it is, or gives an error of the library."""
    chance, counts, broken = random.Random(seed), Counter[str](), list[str]()
    readers: dict[str, Callable[[Path], object]] = {CONFIG: read_toml, HISTORY: read_history, NEWEST: _read_checkpoint}
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        train(folder, seed)
        originals = {name: (folder / name).read_bytes() for name in readers}
        path = Path(parent) / "damaged"
        for n in range(count):
            name = list(readers)[n % len(readers)]
            path.write_bytes(mutated(originals[name], originals[CONFIG], chance))
            try:
                readers[name](path)
                if name == NEWEST and path.read_bytes() != originals[name]:
                    broken.append("a changed checkpoint was read")
                else:
                    counts["read"] += 1
            except (DamagedError, SettingsError):
                counts["refused"] += 1
            except Exception as error:
                broken.append(f"{name}: {type(error).__name__}: {error}"[:200])
    return Outcome("damaged files", count, counts["read"] + counts["refused"], dict(counts), broken[:5])
