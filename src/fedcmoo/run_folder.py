"""A run's folder: configuration, history, checkpoints and model, each of them complete at any time.

config.toml                      what was run
history.jsonl                    a line per round
checkpoint.safetensors           the server's state after some round
checkpoint-previous.safetensors  the one before it
model.safetensors                the final model's state dict
best.safetensors                 that of the best model, with the callback BestModel
curves.png                       the curves of the finished run
result.json                      its scores, weights and traffic, written last
"""

import logging
import os
import tempfile
from pathlib import Path
from typing import IO

import safetensors.torch
from torch import nn

from fedcmoo.checkpoint import Checkpoint
from fedcmoo.files import DamagedError, lock_folder, remove_unfinished, write_atomically
from fedcmoo.history import Record, read_history
from fedcmoo.identity import RunIdentity, differences
from fedcmoo.rounds import Server
from fedcmoo.run import CONFIG, HISTORY, RESULT
from fedcmoo.settings import Table, write_toml

MODEL, NEWEST, PREVIOUS = "model.safetensors", "checkpoint.safetensors", "checkpoint-previous.safetensors"

log = logging.getLogger(__name__)


def holds_run(folder: Path) -> bool:
    """Whether a run was started in a folder, so that it can be resumed."""
    return (folder / HISTORY).exists()


class RunFolder:
    """The folder of one run, created if it does not exist; a checkpoint of another run is refused."""

    def __init__(self, path: Path, run: RunIdentity) -> None:
        self.path = path
        self._run = run
        self._saved = 0
        self._history: IO[str] | None = None
        self._lock: IO[str] | None = None

    def begin(self, server: Server, resume: bool) -> list[Record]:
        """Lock the folder for this process; returns the finished rounds.

        A new run needs a folder without rounds, which would be lost. Resuming restores the server from the newest
        checkpoint that is not damaged. Without a checkpoint, the run starts again; that of a finished run is an error.
        """
        if resume and not holds_run(self.path):
            raise FileNotFoundError(f"resume needs the folder of a run, with a {HISTORY}, but {self.path} has none")
        _make(self.path)
        self._lock = lock_folder(self.path)
        remove_unfinished(self.path)
        history = self.path / HISTORY
        lost = 0 if resume else len(read_history(history))
        if lost:
            rounds = "1 round" if lost == 1 else f"{lost} rounds"
            raise ValueError(
                f"{self.path} already holds a run of {rounds}: continue it with resume=True, or choose another"
            )
        records = self._load(server) if resume else []
        write_atomically(history, "".join(record.to_json() + "\n" for record in records).encode())
        if not records:
            for name in (NEWEST, PREVIOUS):
                (self.path / name).unlink(missing_ok=True)
        (self.path / RESULT).unlink(missing_ok=True)  # it says that the run is finished
        self._saved = server.round
        self._history = history.open("a")
        return records

    def save_config(self, config: Table) -> None:
        """Write the settings of the run."""
        write_atomically(self.path / CONFIG, write_toml(config).encode())

    def append(self, record: Record) -> None:
        """Add a round to the history."""
        assert self._history is not None
        self._history.write(record.to_json() + "\n")
        self._history.flush()

    def save(self, server: Server) -> None:
        """Write the server's state after a round, unless it was saved last; the history is flushed to the disk first.

        The previous checkpoint is kept as a second one, unless the server returned to an earlier round than its own:
        then it was not usable.
        """
        assert self._history is not None
        if server.round == self._saved:
            return
        os.fsync(self._history.fileno())
        keep = self.path / PREVIOUS if server.round > self._saved else None
        write_atomically(self.path / NEWEST, Checkpoint.of(server, self._run).encode(), keep)
        self._saved = server.round

    def _load(self, server: Server) -> list[Record]:
        """Restore the server from a checkpoint; returns the history up to it."""
        damage = []
        for path in [self.path / name for name in (NEWEST, PREVIOUS) if (self.path / name).exists()]:
            try:
                checkpoint = Checkpoint.decode(path.read_bytes())
                self._check_same(checkpoint)
                records = read_history(self.path / HISTORY, checkpoint.round)
                checkpoint.restore(server)
            except DamagedError as error:
                damage.append(f"{path} cannot be used: {error}")
                continue
            if damage:
                log.warning("%s; continuing from the previous one, of round %d", damage[0], checkpoint.round)
            if path.name == PREVIOUS:
                os.replace(path, self.path / NEWEST)
            return records
        if damage:
            raise ValueError("; ".join(damage) + ". Delete the checkpoints to start again from round 1")
        lost = len(read_history(self.path / HISTORY))
        if (self.path / RESULT).exists():
            raise ValueError(
                f"resume needs a checkpoint, but {self.path} holds a finished run of {lost} rounds without one: choose "
                f"another folder, or delete {RESULT} to start again from round 1"
            )
        if lost:
            log.warning("%s has no checkpoint yet: starting again from round 1, without the %d done", self.path, lost)
        return []

    def _check_same(self, checkpoint: Checkpoint) -> None:
        different = differences(checkpoint.run, self._run)
        if different:
            raise ValueError(
                f"{self.path} holds another run:\n{different}\n"
                "continue it with the settings and data it was started with, or choose another folder"
            )

    def close(self) -> None:
        """Close the history file."""
        if self._history is not None:
            self._history.close()
            self._history = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def save_model(path: Path, module: nn.Module) -> None:
    """Write a model's state dict as a safetensors file."""
    state = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
    write_atomically(path, safetensors.torch.save(state))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"the output folder must be writable, but {folder} is not: {error.strerror}") from None
