"""Stop a run when it no longer improves."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedcmoo.callbacks.base import Training
from fedcmoo.callbacks.best import Best
from fedcmoo.history import Record
from fedcmoo.validation import at_least_one


@dataclass(eq=False)
class EarlyStop(Best):
    """Stop after `patience` evaluations in a row that are not the best so far.

    Args:
        metric, objective, split, min_delta, statistic: the criterion, as in `Best`.
        patience: the number of evaluations to wait.
    """

    patience: int = field(default=10, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(patience=self.patience)

    def on_start(self, training: Training) -> None:
        self.start(training)
        self._waited = 0
        for record in training.history:  # of an interrupted run
            self.after_round(record)

    def after_round(self, record: Record) -> bool:
        is_best = self.update(record)
        if is_best is not None:
            self._waited = 0 if is_best else self._waited + 1
        return self._waited >= self.patience
