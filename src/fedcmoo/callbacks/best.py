"""Keep the best model of a run, or stop when none is better: by one objective, a metric, or the mean rank."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.stats import rankdata
from torch import nn

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.client_scores import STATISTICS, statistic
from fedcmoo.evaluation import Scores, columns
from fedcmoo.history import Record
from fedcmoo.run_folder import save_model
from fedcmoo.validation import at_least_one, check_literals

BEST = "best.safetensors"
RANK = "rank"

Split = Literal["validation", "test", "client_test"]


@dataclass(eq=False)
class Best(Callback):
    """Base class of callbacks that decide whether each evaluation is the best so far.

    Args:
        metric: "rank", "loss" or the name of a metric. By "rank" the best evaluation is the one whose losses have the
            lowest mean rank over objectives among all evaluations so far: losses of different kinds count equally.
            Otherwise it is the one with the best mean over the objectives that have the metric.
        objective: the only objective that counts; None for all.
        split: the evaluated data; "client_test" for each client's own.
        min_delta: by how much a mean must be better to count; ranks have no such threshold.
        statistic: the statistic over clients: "mean", "worst_tenth" or "spread" (less is better).
    """

    metric: str = RANK
    objective: str | None = None
    split: Split = "validation"
    min_delta: float = 0.0
    statistic: str = "mean"

    def __post_init__(self) -> None:
        check_literals(self)
        if self.statistic not in STATISTICS:
            raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, but got {self.statistic!r}")

    def start(self, training: Training) -> None:
        """Check that the problem has the watched metric and data, and reset."""
        problem = training.problem
        if getattr(problem, self.split) is None:
            raise ValueError(
                f"{type(self).__name__} needs {self.split} data, but the problem has none: give it some, or choose "
                "another split"
            )
        wanted = "loss" if self.metric == RANK else self.metric
        known = [(name, metric) for name, metric in columns(problem) if self.objective in (None, name)]
        self._names = [name for name, metric in known if metric == wanted]
        if not self._names:
            what = f"objective {self.objective!r}" if self.objective else "some objective"
            raise ValueError(f"{what} must have the metric {wanted!r}, but there are only {known or columns(problem)}")
        higher = {m.name for objective in problem.objectives for m in objective.metrics if m.higher_is_better}
        self._metric, self._sign = wanted, -1.0 if wanted in higher and self.statistic != "spread" else 1.0
        self._rows: list[list[float]] = []
        self._lowest = float("inf")

    def update(self, record: Record) -> bool | None:
        """Whether the evaluation of a round is the best so far; None for a round without one."""
        found = getattr(record, self.split)
        if found is None:
            return None
        scores: Scores = statistic(found, self.statistic) if self.split == "client_test" else found
        worst = self._sign * float("inf")  # the metric was NaN
        self._rows.append([self._sign * scores[name].get(self._metric, worst) for name in self._names])
        if self.metric == RANK:
            ranks = rankdata(np.array(self._rows), axis=0).mean(axis=1)
            return bool((ranks[:-1] > ranks[-1]).all())
        mean = float(np.mean(self._rows[-1]))
        is_best = mean < self._lowest - self.min_delta
        self._lowest = min(mean, self._lowest) if is_best else self._lowest
        return is_best


class BestModel(Best):
    """Keeps the model of the best evaluation, and writes it to `best.safetensors` in the run's folder.

    Args:
        metric, objective, split, min_delta, statistic: the criterion, as in `Best`.

    Attributes:
        model: the best model so far; None before the first evaluation, and after a resume until there is a better one
            (its parameters are in the folder).
        round: the round of the best model.

    >>> best = BestModel("accuracy", objective="left")
    """

    model: nn.Module | None = None
    round: int | None = None

    def on_start(self, training: Training) -> None:
        self._training = training
        self.start(training)
        self.model = self.round = None
        for record in training.history:
            if self.update(record):
                self.round = record.round

    def after_round(self, record: Record) -> None:
        if not self.update(record):
            return
        self.model, self.round = self._training.model(), record.round
        if self._training.folder is not None:
            save_model(self._training.folder / BEST, self.model)


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
