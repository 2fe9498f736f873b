"""Log runs to Weights & Biases (extra `wandb`)."""

from __future__ import annotations

from typing import Any

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.numbers import numbers
from fedcmoo.history import Record
from fedcmoo.methods import METHODS
from fedcmoo.optional import require
from fedcmoo.result import Result
from fedcmoo.settings import described


class WandB(Callback):
    """Logs losses, metrics, weights, traffic and seconds of every round, and the method's settings as configuration.

    Args:
        project: the project of the run.
        settings: further arguments of `wandb.init`, such as `mode="offline"` or `name="first try"`.
    """

    def __init__(self, project: str = "fedcmoo", **settings: Any) -> None:
        self._wandb = require("wandb", extra="wandb")
        self._settings = {"project": project, **settings}
        self._run: Any = None

    def on_start(self, training: Training) -> None:
        config = {"problem": training.problem.name, "method": described(training.method, METHODS)}
        self._run = self._wandb.init(config={**config, "rounds": training.rounds}, **self._settings)

    def after_round(self, record: Record) -> None:
        self._run.log(numbers(record), step=record.round)

    def on_end(self, result: Result) -> None:
        self._run.summary.update(result.summary())

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
