"""Losses and metrics of a model on some data, in large batches.

Sums over samples are float64 and weighted by the batch's size, so neither the batch size nor who evaluates which part
matters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcmoo.data.base import Data
from fedcmoo.parameters import FlatModel, move
from fedcmoo.problem import Problem

BATCH = 1000
"""Samples in one forward pass without gradients, and the unit in which engines share out an evaluation."""

Scores = dict[str, dict[str, float]]
"""By objective's name: its "loss" and its metrics by name."""


@torch.no_grad()
def evaluate(problem: Problem, model: FlatModel, data: Data, start: int, stop: int) -> Tensor:
    """Sums over the samples start to stop of each objective's loss, then of each objective's metrics: float64 [n]."""
    model.module.eval()
    names = columns(problem)
    totals = torch.zeros(len(names), dtype=torch.float64)
    for first in range(start, stop, BATCH):
        index = torch.arange(first, min(first + BATCH, stop))
        inputs, targets = data.batch(index)
        outputs, targets = model(inputs), move(targets, model.device)
        values = problem.losses(outputs, targets)
        for k, objective in enumerate(problem.objectives):
            for metric in objective.metrics:
                values.append(torch.as_tensor(metric.function(problem.of(outputs, k), problem.of(targets, k))))
        totals += torch.stack([value.to(torch.float64).cpu() for value in values]) * len(index)
    return totals


def columns(problem: Problem) -> list[tuple[str, str]]:
    """What each entry of `evaluate`'s result is: (objective, "loss" or metric)."""
    losses = [(objective.name, "loss") for objective in problem.objectives]
    return losses + [(o.name, metric.name) for o in problem.objectives for metric in o.metrics]


def scores(problem: Problem, totals: Tensor, count: int) -> Scores:
    """Totals of `count` samples as means by objective and metric."""
    result: Scores = {objective.name: {} for objective in problem.objectives}
    for (objective, metric), total in zip(columns(problem), totals.tolist(), strict=True):
        result[objective][metric] = total / count
    return result


def not_finite(scores: Scores) -> list[tuple[str, str, float]]:
    """The scores that are NaN or infinite: (objective, metric, value).

    >>> not_finite({"left": {"loss": 0.5}, "right": {"loss": math.inf}})
    [('right', 'loss', inf)]
    """
    every = [(name, metric, value) for name, values in scores.items() for metric, value in values.items()]
    return [score for score in every if not math.isfinite(score[2])]


def metric_names(scores: Scores) -> list[str]:
    """The names of all metrics that some objective has, the loss last.

    >>> metric_names({"click": {"loss": 0.3, "accuracy": 0.9}, "dwell": {"loss": 2.0}})
    ['accuracy', 'loss']
    """
    names = dict.fromkeys(name for values in scores.values() for name in values)
    return sorted(names, key=lambda name: name == "loss")


def mean_score(scores: Scores, metric: str) -> float:
    """The mean of a metric over the objectives that have it.

    >>> mean_score({"click": {"loss": 1.0, "accuracy": 0.9}, "dwell": {"loss": 2.0}}, "accuracy")
    0.9
    """
    found = [values[metric] for values in scores.values() if metric in values]
    return sum(found) / len(found)
