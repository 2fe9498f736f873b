"""What a node keeps between the phases of a round, on its own disk.

Flower starts a new process for every message, and `Context.state` loses large arrays, so the model of the round and
phase one's gradients wait in files. Each file carries the token of its round: what belongs to another round or run is
never used. Only the node's user can read them.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcmoo.client import FirstStep, State
from fedcmoo.files import write_atomically
from fedcmoo.messages import Message
from fedcmoo.worker import Worker

FORGET_AFTER = 24 * 3600
"""Seconds after which a spool that no run touched any more is deleted."""


class Spool:
    """The files of one node and run.

    Args:
        parent: the folder in which the user's spools are; None for the system's temporary folder.
        name: of the node and run.
    """

    def __init__(self, parent: Path | None, name: str) -> None:
        mine = (parent or Path(tempfile.gettempdir())) / f"fedcmoo-{os.getuid()}"
        mine.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = mine.lstat()  # in a folder for all, somebody else may have made it, or a link of that name
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            raise PermissionError(f"{mine} must be a folder of the user who runs the node, but is not")
        _forget_old(mine)
        self.path = mine / name
        self.path.mkdir(mode=0o700, exist_ok=True)

    def write(self, name: str, token: str, arrays: dict[str, Tensor]) -> None:
        """Keep some arrays under a name, for the round of this token."""
        cpu = {key: array.detach().cpu().contiguous() for key, array in arrays.items()}
        write_atomically(self.path / name, safetensors.torch.save(cpu, {"token": token}))

    def read(self, name: str, token: str) -> dict[str, Tensor] | None:
        """The arrays kept under a name, if they are of this round."""
        try:
            with safe_open(self.path / name, framework="pt") as file:
                if (file.metadata() or {}).get("token") != token:
                    return None
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
        except (FileNotFoundError, SafetensorError):
            return None

    def drop(self, name: str) -> None:
        """Delete what is kept under a name."""
        (self.path / name).unlink(missing_ok=True)

    def write_model(self, token: str, model: Message) -> None:
        """Keep the model of a round; the gradients of the round before go."""
        for old in self.path.glob("first-*"):
            old.unlink(missing_ok=True)
        self.write("model", token, dict(model))

    def read_model(self, token: str) -> State | None:
        """The model of the round with this token."""
        arrays = self.read("model", token)
        return None if arrays is None else State(arrays["x"], arrays["buffers"], arrays["counters"])


class SpoolingWorker(Worker):
    """A worker whose clients' phase-one gradients outlive its process: they wait in a spool between two asks."""

    def begin(self, spool: Spool, token: str, seed: int) -> None:
        """What follows belongs to the round of this token, in a run with this seed."""
        self._spool, self._token, self.seed = spool, token, seed

    def answer(self, state: State, round: int, phase: str, message: Message, i: int) -> Message:
        """As `Worker.answer`, with the first step taken from the spool and put back there."""
        name = f"first-{i}"
        arrays = self._spool.read(name, self._token)
        first = None
        if arrays is not None:
            first = FirstStep(**{key: array.to(self.model.device) for key, array in arrays.items()})
        self._kept, self._kept_round = ({} if first is None else {i: first}), round
        reply = super().answer(state, round, phase, message, i)
        after = self._kept.pop(i, None)
        if after is None:
            self._spool.drop(name)
        elif first is None:
            arrays = {"J": after.J, "buffers": after.buffers, "counters": after.counters}
            self._spool.write(name, self._token, arrays)
        return reply


def _forget_old(folder: Path) -> None:
    for spool in folder.iterdir():
        if time.time() - spool.stat().st_mtime > FORGET_AFTER:
            shutil.rmtree(spool, ignore_errors=True)
