"""End a run when it no longer gets better."""

from __future__ import annotations

from fedcmoo.callbacks.base import Callback, Run
from fedcmoo.evaluation import columns
from fedcmoo.history import Record


class EarlyStop(Callback):
    """Stop after `patience` evaluations in a row without a better mean over objectives.

    Args:
        metric: "loss", or a metric that every objective has.
        patience: evaluations to wait.
        split: "validation" or "test".
        min_delta: what counts as better.
    """

    def __init__(
        self, metric: str = "loss", patience: int = 10, split: str = "validation", min_delta: float = 0.0
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1, but got {patience}")
        if split not in ("validation", "test"):
            raise ValueError(f"split must be 'validation' or 'test', but got {split!r}")
        self.metric, self.patience, self.split, self.min_delta = metric, patience, split, min_delta

    def on_start(self, run: Run) -> None:
        if getattr(run.problem, self.split) is None:
            raise ValueError(f"EarlyStop needs {self.split} data, but the problem has none")
        for objective in run.problem.objectives:
            known = [metric for name, metric in columns(run.problem) if name == objective.name]
            if self.metric not in known:
                raise ValueError(f"EarlyStop needs {self.metric!r} of {objective.name!r}, which has only {known}")
        metrics = {m.name: m.higher_is_better for o in run.problem.objectives for m in o.metrics}
        self._sign = 1.0 if metrics.get(self.metric, False) else -1.0
        self._best, self._waited = float("-inf"), 0
        for record in run.history:  # of an interrupted run
            self.after_round(record)

    def after_round(self, record: Record) -> bool:
        scores = record.validation if self.split == "validation" else record.test
        if scores is None:
            return False
        value = self._sign * sum(s[self.metric] for s in scores.values()) / len(scores)
        if value > self._best + self.min_delta:
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        return self._waited >= self.patience
