"""Curves in TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcmoo.callbacks.base import Callback, Run
from fedcmoo.history import Record
from fedcmoo.optional import require


class TensorBoard(Callback):
    """Losses, metrics, weights, traffic and seconds of every round.

    Args:
        folder: where the event files go.
    """

    def __init__(self, folder: str | Path) -> None:
        self._tensorboard = require("torch.utils.tensorboard", extra="tensorboard")
        self._folder = str(folder)
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        # Here, since it makes the folder, and that not before all is checked.
        self._writer = self._tensorboard.SummaryWriter(self._folder)

    def after_round(self, record: Record) -> None:
        for split, scores in (("test", record.test), ("validation", record.validation)):
            for objective, values in (scores or {}).items():
                for metric, value in values.items():
                    self._writer.add_scalar(f"{split}/{metric}/{objective}", value, record.round)
        for objective, weight in record.weights.items():
            self._writer.add_scalar(f"weights/{objective}", weight, record.round)
        if record.grad_norm_sq is not None:
            self._writer.add_scalar("grad_norm_sq", record.grad_norm_sq, record.round)
        for name, value in record.notes.items():
            self._writer.add_scalar(f"notes/{name}", value, record.round)
        self._writer.add_scalar("traffic/up", sum(record.up.values()), record.round)
        self._writer.add_scalar("traffic/down", sum(record.down.values()), record.round)
        self._writer.add_scalar("seconds", sum(record.seconds.values()), record.round)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
