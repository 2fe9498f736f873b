"""A run's folder: configuration, history, checkpoint and model, none of them pickled, each of them whole at any moment.

config.toml             what was run (written by the command line)
history.jsonl           a line per round
checkpoint.safetensors  the server's state after some round
model.safetensors       the final model's state dict
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fedcmoo.files import write_atomically
from fedcmoo.history import Record, read_history
from fedcmoo.rounds import Server

SERVER_STATE = ("x", "buffers", "counters", "w")
"""The arrays that every checkpoint has."""


class RunFolder:
    """The folder of one run.

    Args:
        path: made if it is not there.
        made_by: settings that a checkpoint holds on to, since going on with others would be another run.
    """

    def __init__(self, path: Path, made_by: Mapping[str, str]) -> None:
        self.path = path
        self._made_by = dict(made_by)
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise OSError(f"the output folder must be writable, but {path} is not: {error.strerror}") from None
        self._history: IO[str] | None = None
        self._lock: IO[str] | None = None

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    def begin(self, server: Server, resume: bool) -> list[Record]:
        """Make the folder this process's; returns the rounds that are done.

        A new run needs a folder without rounds, which would be lost. To resume is to put the server back into the
        state of the checkpoint; without a checkpoint yet, it stays as it is and no round is done.
        """
        self._lock = _locked(self.path)
        lost = 0 if resume else len(read_history(self.history))
        if lost:
            raise ValueError(
                f"{self.path} already holds a run of {lost} rounds: go on with it by resume=True, or choose another"
            )
        records = self._load(server) if resume and self.checkpoint.exists() else []
        write_atomically(self.history, "".join(record.to_json() + "\n" for record in records).encode())
        if not records:
            self.checkpoint.unlink(missing_ok=True)
        self._history = self.history.open("a")
        return records

    def append(self, record: Record) -> None:
        """Add a round to the history."""
        assert self._history is not None
        self._history.write(record.to_json() + "\n")
        self._history.flush()

    def save(self, server: Server) -> None:
        """Write the server's state after its last round; the history reaches the disk first."""
        assert self._history is not None
        os.fsync(self._history.fileno())
        arrays = {"x": server.x, "buffers": server.buffers, "counters": server.counters}
        arrays["w"] = torch.from_numpy(server.w)
        arrays |= {f"memory.{name}": value for name, value in server.memory.items()}
        cpu = {name: array.detach().cpu().contiguous() for name, array in arrays.items()}
        about = {"round": str(server.round), **self._made_by, "format": "fedcmoo checkpoint 1"}
        write_atomically(self.checkpoint, safetensors.torch.save(cpu, about))

    def _load(self, server: Server) -> list[Record]:
        """Put the server back into the state of the checkpoint; returns the history up to there."""
        about, arrays = _read(self.checkpoint)
        for name, value in self._made_by.items():
            if about.get(name, value) != value:  # earlier versions wrote fewer of them
                raise ValueError(f"the checkpoint was made with {name} {about[name]}, but this run has {value}")
        for name, now in {"x": server.x, "buffers": server.buffers, "counters": server.counters}.items():
            if arrays[name].shape != now.shape:
                raise ValueError(
                    f"the checkpoint's {name} must have {now.numel()} entries, as the model has, "
                    f"but has {arrays[name].numel()}: is it another model?"
                )
        server.x = arrays["x"].to(server.x)
        server.buffers = arrays["buffers"].to(server.buffers)
        server.counters = arrays["counters"]
        server.w = arrays["w"].numpy().astype(np.float64)
        server.memory = {n.removeprefix("memory."): a for n, a in arrays.items() if n.startswith("memory.")}
        server.round = int(about["round"])
        return read_history(self.history, server.round)

    def save_model(self, module: nn.Module) -> None:
        """Write the model's state dict."""
        state = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
        write_atomically(self.path / "model.safetensors", safetensors.torch.save(state))

    def close(self) -> None:
        """Close the history file."""
        if self._history is not None:
            self._history.close()
            self._history = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a checkpoint says about itself, and its arrays."""
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, str] = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to start again from round 1") from None
    missing = [name for name in ("round", *SERVER_STATE) if name not in about and name not in arrays]
    if missing:
        raise ValueError(f"{path} must be a checkpoint of fedcmoo, but has no {missing[0]!r}")
    return about, arrays


def _locked(folder: Path) -> IO[str]:
    """A file in the folder that only one process can hold at a time; when that process ends, the system lets go."""
    file = (folder / ".lock").open("w")
    try:
        import fcntl
    except ImportError:  # Windows: without protection
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OSError(f"{folder} is in use by another run; wait for it, or choose another folder") from None
    return file
