"""Curves of one or several runs: losses, metrics and weights over rounds or uploaded bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcmoo.evaluation import mean_score, metric_names
from fedcmoo.history import Record

Runs = Mapping[str, Sequence[Sequence[Record]]]
"""By label, the histories of one or several seeds."""

MOST_NAMES = 12
"""More lines than that have no legend: it would not fit, and their colours repeat."""


def plot_curves(runs: Runs, x: str = "round", title: str = "") -> Figure:
    """A panel per metric (and the loss), and one with the weights where there is one run.

    With several runs each panel shows the mean over objectives, and the band is the spread over seeds; with one run
    each panel shows every objective.
    """
    if x not in ("round", "upload"):
        raise ValueError(f"x must be 'round' or 'upload', but got {x!r}")
    alone = len(runs) == 1 and len(next(iter(runs.values()))) == 1
    metrics = _metrics(runs)
    panels = [*metrics, "weights"] if alone else metrics
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, panel in zip(axes, panels, strict=True):
        if panel == "weights":
            _weights(ax, next(iter(runs.values()))[0], x)
        elif alone:
            _objectives(ax, next(iter(runs.values()))[0], panel, x)
            ax.set_title(f"{_split(runs)} {panel}")
        else:
            for label, histories in runs.items():
                _band(ax, label, histories, panel, x)
            ax.set_title(f"mean {_split(runs)} {panel}")
        ax.set_xlabel("round" if x == "round" else "uploaded megabytes, all clients")
        ax.grid(alpha=0.3)
        if 0 < len(ax.get_lines()) <= MOST_NAMES:
            ax.legend(fontsize="small")
    figure.suptitle(title)
    return figure


def _metrics(runs: Runs) -> list[str]:
    scores = (record.scores for histories in runs.values() for record in histories[0] if record.scores)
    return next((metric_names(found) for found in scores), ["loss"])


def _split(runs: Runs) -> str:
    """Which data the scores are of."""
    some = any(record.test for histories in runs.values() for history in histories for record in history)
    return "test" if some else "validation"


def _positions(history: Sequence[Record], x: str) -> list[float]:
    if x == "round":
        return [float(record.round) for record in history]
    return list(np.cumsum([sum(record.up.values()) for record in history]) / 1e6)


def _objectives(ax: Axes, history: Sequence[Record], metric: str, x: str) -> None:
    at = [(p, r.scores) for p, r in zip(_positions(history, x), history, strict=True) if r.scores]
    for name in [name for name, values in at[0][1].items() if metric in values] if at else ():
        ax.plot([p for p, _ in at], [scores[name][metric] for _, scores in at], label=name)


def _weights(ax: Axes, history: Sequence[Record], x: str) -> None:
    for name in history[0].weights:
        ax.plot(_positions(history, x), [record.weights[name] for record in history], label=name, lw=1)
    every = [w for record in history for w in record.weights.values()]
    ax.set_ylim(min(-0.02, *every), max(1.02, *every))
    ax.set_title("weights")


def _band(ax: Axes, label: str, histories: Sequence[Sequence[Record]], metric: str, x: str) -> None:
    curves = []
    for history in histories:
        at = [(p, r.scores) for p, r in zip(_positions(history, x), history, strict=True) if r.scores]
        curves.append(np.array([[p, mean_score(scores, metric)] for p, scores in at]))
    n = min(len(curve) for curve in curves)
    if n == 0:
        return
    values = np.stack([curve[:n, 1] for curve in curves])
    (line,) = ax.plot(curves[0][:n, 0], values.mean(axis=0), label=label)
    if len(curves) > 1:
        ax.fill_between(
            curves[0][:n, 0], values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color(), lw=0
        )
