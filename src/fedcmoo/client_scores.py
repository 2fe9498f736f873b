"""The distribution of losses and metrics over clients, each evaluated on its own test data."""

import math
from collections.abc import Sequence

import numpy as np

from fedcmoo.evaluation import Scores, columns
from fedcmoo.problem import Problem
from fedcmoo.sums import Sums
from fedcmoo.types import Vector

ClientScores = dict[str, dict[str, dict[str, float]]]
"""The `distribution` over clients of each loss and metric, by the objective's name and "loss" or the metric's name."""

STATISTICS = ("mean", "worst_tenth", "spread")
"""The statistics by which runs can be compared."""

QUANTILES = range(0, 101, 10)
"""In per cent; the distribution's "q0" is the smallest value, "q100" the largest one."""


def distribution(values: Sequence[float] | Vector, higher_is_better: bool) -> dict[str, float]:
    """The mean over clients, the mean of the tenth with the worst values, the standard deviation, and quantiles.

    The worst tenth of n clients are the ceil(n / 10) with the worst values.

    >>> found = distribution([0.5, 0.9, 0.8, 0.6], higher_is_better=True)
    >>> round(found["mean"], 4), found["worst_tenth"], found["q100"]
    (0.7, 0.5, 0.9)
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    worst = math.ceil(len(ordered) / 10)
    tail = ordered[:worst] if higher_is_better else ordered[-worst:]
    found = {"mean": ordered.mean(), "worst_tenth": tail.mean(), "spread": ordered.std()}
    found |= {f"q{p}": value for p, value in zip(QUANTILES, np.percentile(ordered, list(QUANTILES)), strict=True)}
    return {name: float(value) for name, value in found.items()}


def client_scores(problem: Problem, sums: Sums) -> ClientScores:
    """The distributions of means over samples, given the clients' "totals" and "counts" of samples [clients, columns].

    All clients count equally, regardless of their numbers of samples; those without a label for an objective are left
    out for it. An objective for which no client has a label has no distribution.
    """
    totals, counts = sums["totals"].numpy(), sums["counts"].numpy()
    higher = {(o.name, m.name) for o in problem.objectives for m in o.metrics if m.higher_is_better}
    result: ClientScores = {objective.name: {} for objective in problem.objectives}
    for n, (objective, metric) in enumerate(columns(problem)):
        known = counts[:, n] > 0
        if known.any():
            values = totals[known, n] / counts[known, n]
            result[objective][metric] = distribution(values, (objective, metric) in higher)
    return result


def statistic(scores: ClientScores, name: str) -> Scores:
    """One number of each distribution: "mean", "worst_tenth", "spread" or a quantile."""
    return {o: {metric: found[name] for metric, found in metrics.items()} for o, metrics in scores.items()}
