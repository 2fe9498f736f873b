"""Log curves to TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.numbers import numbers
from fedcmoo.history import Record
from fedcmoo.optional import require


class TensorBoard(Callback):
    """Logs losses, metrics, weights, traffic and seconds of every round.

    Args:
        folder: the folder of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        self._tensorboard = require("torch.utils.tensorboard", extra="tensorboard")
        self._folder = str(folder)
        self._writer: Any = None

    def on_start(self, training: Training) -> None:
        # Created here because it makes the folder, which must not happen before all checks.
        self._writer = self._tensorboard.SummaryWriter(self._folder)

    def after_round(self, record: Record) -> None:
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
