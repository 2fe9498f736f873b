"""The charts that any set of runs gives: learning curves, and the weights over time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcmoo.evaluation import Scores, mean_score, metric_names
from fedcmoo.report.chart import Chart, Line, Panel, thinned
from fedcmoo.report.runs import Labelled

UPLOADED = "uploaded megabytes, all clients"

FEW = 12
"""Of no more evaluations than this, each is marked on its line."""

MOST_OBJECTIVES = 12
"""Of more objectives than this, a page shows the mean alone."""


def metrics_of(runs: Labelled) -> list[str]:
    """All metrics, the loss last."""
    return next((metric_names(run.final) for same in runs.values() for run in same if run.evaluated), [])


def curve_lines(runs: Labelled, value: Callable[[Scores], float]) -> list[Line]:
    """A line for each label over rounds and over uploaded megabytes; the band spans the seeds."""
    lines = []
    for label, same in runs.items():
        n = min(len(run.evaluated) for run in same)
        if n == 0:
            continue
        at = [record.round for record, _ in same[0].evaluated[:n]]
        values = np.array([[value(scores) for _, scores in run.evaluated[:n]] for run in same])
        uploaded = np.mean([[run.uploaded[r - 1] / 1e6 for r in at] for run in same], axis=0)
        several = len(same) > 1
        lines.append(
            Line(
                label,
                {"round": thinned(at), UPLOADED: thinned(uploaded.tolist())},
                thinned(values.mean(axis=0).tolist()),
                thinned(values.min(axis=0).tolist()) if several else (),
                thinned(values.max(axis=0).tolist()) if several else (),
                style="marked" if n <= FEW else "line",
            )
        )
    return lines


def curves_chart(problem: str, runs: Labelled, note: str = "") -> Chart:
    """A panel for each metric's mean over objectives, then one for each objective's."""
    metrics = metrics_of(runs)
    panels = [Panel(f"mean {metric}", metric, curve_lines(runs, mean_of(metric))) for metric in metrics]
    final = next(run for same in runs.values() for run in same if run.evaluated).final if panels else {}
    if 1 < len(final) <= MOST_OBJECTIVES:
        panels += [
            Panel(f"{name}: {metric}", metric, curve_lines(runs, value_of(name, metric)))
            for metric in metrics
            for name, values in final.items()
            if metric in values
        ]
    see = "Each line is a method, the band its spread over seeds: higher accuracy and lower loss, sooner, are better."
    return Chart(f"curves-{problem}", f"{problem}: learning curves", see, panels, note)


def weights_chart(problem: str, runs: Labelled, note: str = "") -> Chart:
    """The objectives' weights over the rounds, a panel for each label; of several seeds, the mean."""
    panels = []
    for label, same in runs.items():
        n = min(len(run.history) for run in same)
        rounds = [record.round for record in same[0].history[:n]]
        lines = []
        for name in list(same[0].history[0].weights)[:MOST_OBJECTIVES]:
            mean = np.mean([[record.weights[name] for record in run.history[:n]] for run in same], axis=0)
            lines.append(Line(name, {"round": thinned(rounds)}, thinned(mean.tolist())))
        every = [y for line in lines for y in line.y]
        panels.append(Panel(label, "weight", lines, y_range=(min(-0.02, *every), max(1.02, *every))))
    M = max(len(same[0].history[0].weights) for same in runs.values())
    see = "How much each objective counts in a round: equal weights are averaging, a weight of 1 leaves one alone."
    if M > MOST_OBJECTIVES:
        see += f" The first {MOST_OBJECTIVES} of {M} objectives are shown."
    return Chart(f"weights-{problem}", f"{problem}: the objectives' weights over time", see, panels, note)


def mean_of(metric: str) -> Callable[[Scores], float]:
    """A metric's mean over objectives."""
    return lambda scores: mean_score(scores, metric)


def value_of(objective: str, metric: str) -> Callable[[Scores], float]:
    """One objective's metric."""
    return lambda scores: scores[objective][metric]
