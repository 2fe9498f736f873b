"""Stop a run when it no longer improves."""

from __future__ import annotations

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.best import RANK, Best, Split
from fedcmoo.history import Record
from fedcmoo.validation import at_least_one


class EarlyStop(Callback):
    """Stop after `patience` evaluations in a row that are not the best so far.

    Args:
        metric, objective, split, min_delta, statistic: the criterion, as in `Best`.
        patience: the number of evaluations to wait.
    """

    def __init__(
        self,
        metric: str = RANK,
        patience: int = 10,
        split: Split = "validation",
        min_delta: float = 0.0,
        objective: str | None = None,
        statistic: str = "mean",
    ) -> None:
        at_least_one(patience=patience)
        self.patience = patience
        self._best = Best(metric, objective, split, min_delta, statistic)

    def on_start(self, training: Training) -> None:
        self._best.start(training)
        self._waited = 0
        for record in training.history:  # of an interrupted run
            self.after_round(record)

    def after_round(self, record: Record) -> bool:
        is_best = self._best.update(record)
        if is_best is not None:
            self._waited = 0 if is_best else self._waited + 1
        return self._waited >= self.patience
