"""Evaluation of a model's losses and metrics on some data, in large batches.

Sums over samples are float64 and weighted by the number of labelled samples in the batch, so the result does not depend
on the batch size or on how the work is divided. If a loss is NaN or infinite, `check_finite` and `diverged` name the
cause: data that are not finite, or the objective whose loss or gradient was affected first.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedcmoo.data.base import Data, is_finite
from fedcmoo.failures import DivergedError
from fedcmoo.parameters import FlatModel
from fedcmoo.problem import Problem

BATCH = 1000
"""The number of samples in one forward pass without gradients, and the unit in which engines divide an evaluation."""

Scores = dict[str, dict[str, float]]
"""The "loss" and metrics of each objective, by the objective's name."""


@torch.no_grad()
def evaluate(
    problem: Problem, model: FlatModel, data: Data, start: int, stop: int, which: Iterable[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Sums over the samples start to stop of each objective's loss, then of each objective's metrics, and the number of
    samples with a label for each: both float64 [n]. Objectives whose indices are not in `which` have zeros."""
    model.module.eval()
    places = columns(problem)
    totals, counts = torch.zeros(2, len(places), dtype=torch.float64)
    for first in range(start, stop, BATCH):
        index = torch.arange(first, min(first + BATCH, stop))
        inputs, targets = data.batch(index)
        outputs, targets = model(inputs), model.move(targets)
        for k in range(problem.M) if which is None else which:
            values, labelled = problem.scores(outputs, targets, k)
            n = len(index) if labelled is None else labelled
            for name, value in values.items():
                place = places.index((problem.objectives[k].name, name))
                totals[place] += value.to(torch.float64).cpu() * n
                counts[place] += n
    return totals, counts


def columns(problem: Problem) -> list[tuple[str, str]]:
    """The meaning of each entry of `evaluate`'s result: (objective, "loss" or metric)."""
    losses = [(objective.name, "loss") for objective in problem.objectives]
    return losses + [(o.name, metric.name) for o in problem.objectives for metric in o.metrics]


def scores(problem: Problem, totals: Tensor, counts: Tensor) -> Scores:
    """The means by objective and metric, from totals and numbers of samples."""
    result: Scores = {objective.name: {} for objective in problem.objectives}
    for (objective, metric), total, count in zip(columns(problem), totals.tolist(), counts.tolist(), strict=True):
        if count == 0:
            raise ValueError(
                f"data to evaluate on must have labels for every objective, but has none for {objective!r}"
            )
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
    """The mean of a metric over the objectives that have it; NaN if none has.

    >>> mean_score({"click": {"loss": 1.0, "accuracy": 0.9}, "dwell": {"loss": 2.0}}, "accuracy")
    0.9
    """
    found = [values[metric] for values in scores.values() if metric in values]
    return sum(found) / len(found) if found else math.nan


def check_finite(problem: Problem, data: Data, whose: str) -> None:
    """Raise if some sample has NaN or infinite entries, other than missing labels."""
    for i in range(len(data)):
        inputs, targets = data.batch(torch.tensor([i]))
        for name, part in (("inputs", inputs), ("targets", () if problem.has_separate_targets(targets) else targets)):
            if not is_finite(part):
                raise ValueError(f"{name} must be finite, but sample {i} of {whose} has NaN or infinite ones")


def diverged(problem: Problem, which: Sequence[int], losses: Tensor, values: Tensor, where: str) -> DivergedError:
    """The error that names the objective whose loss was NaN or infinite first, or else those whose gradient was.

    `losses` are those of the n objectives `which`, n in each step, and `values` the gradients of all objectives,
    [M, d], or the resulting x, [1, d].
    """
    step = next((row for row in losses.reshape(-1, len(which)) if not row.isfinite().all()), None)
    if step is not None:
        what, bad = "loss", [k for k, loss in zip(which, step, strict=True) if not loss.isfinite()]
    else:
        what, bad = "gradient", [k for k in which if len(values) == 1 or not values[k].isfinite().all()]
    names = " or ".join(repr(problem.objectives[k].name) for k in bad)
    return DivergedError(
        f"the {what} of objective {names} became NaN or infinite in {where}; a smaller client_lr or server_lr usually "
        "helps"
    )
