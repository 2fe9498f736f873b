"""Things that go wrong on a client, each at a chosen moment, once or always."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedcmoo.problem import SAMPLES
from tests.core.problems import Noise


@dataclass
class Accident(ABC):
    """The augmentation `Noise`, with an accident at the n-th batch of this process.

    Args:
        marker: a file that is made, with the process's id, when it happens; where it is, it does not happen again.
            None to let it happen again and again.
    """

    marker: Path | None
    at_batch: int = 1
    batches: int = 0

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        self.batches += len(inputs) > SAMPLES  # not those of the first pass before training
        if self.batches >= self.at_batch and self._is_first():
            self.happen()
        return Noise()(inputs, generator)

    def _is_first(self) -> bool:
        if self.marker is None:
            return True
        try:
            with self.marker.open("x") as file:  # of two processes at the same batch, one succeeds
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True

    @abstractmethod
    def happen(self) -> None:
        """What goes wrong."""


class Killed(Accident):
    """The process is killed, as the system does when memory is short."""

    def happen(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Stopped(Accident):
    """The process is stopped, as by a debugger, and never goes on."""

    def happen(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class OutOfMemory(Accident):
    """torch is asked for more memory than there is."""

    def happen(self) -> None:
        torch.empty(2**50)


class Stuck(Accident):
    """A batch that takes very long."""

    def happen(self) -> None:
        time.sleep(60)


class Bug(Accident):
    """A mistake in the user's code."""

    def happen(self) -> None:
        raise LookupError("no such sample: 17")


def nothing_but_nan(output: Tensor, target: Tensor) -> Tensor:
    """A loss that diverges at once."""
    return output.mean() * float("nan")
