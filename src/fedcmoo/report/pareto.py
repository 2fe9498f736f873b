"""The figure of a front: losses with the rays asked for, or parallel coordinates where there are many objectives."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcmoo.pareto.preferences import ratio_text

if TYPE_CHECKING:
    from fedcmoo.pareto.front import Front

INFEASIBLE = "0.9"
PLANES = 3
"""Up to so many objectives a figure has a plane for each pair of them."""


def plot_front(front: Front) -> Figure:
    """A plane for each pair of objectives; parallel coordinates for more than three objectives.

    In a plane a colour is a preference: the ray is where its losses should lie, the dot where they do; hollow dots are
    dominated. Dashed lines are the losses of objectives trained alone; nothing should lie in the grey beyond them.
    """
    M = len(front.objectives)
    if M > PLANES:
        return _parallel(front)
    pairs = list(combinations(range(M), 2)) or [(0, 0)]
    figure = Figure(figsize=(4.6 * len(pairs) + 1.4, 4.6), layout="constrained")
    for ax, (i, j) in zip(figure.subplots(1, len(pairs), squeeze=False)[0], pairs, strict=True):
        _plane(ax, front, i, j)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title=" : ".join(front.objectives), fontsize="small")
    _title(figure, front)
    return figure


def _title(figure: Figure, front: Front) -> None:
    figure.axes[0].set_title(f"{front.problem}: losses for each preference", loc="left")


def _colours(front: Front) -> list[tuple[float, float, float, float]]:
    """A colour for each point: along a scale where preferences have an order, for two objectives; else all differ."""
    n = len(front.points)
    if len(front.objectives) == 2:
        return [matplotlib.colormaps["viridis"](x) for x in np.linspace(0, 0.92, n)]
    distinct = matplotlib.colormaps["tab10" if n <= 10 else "tab20"]
    return [distinct(k % distinct.N) for k in range(n)]


def _plane(ax: Axes, front: Front, i: int, j: int) -> None:
    losses = front.losses[:, [i, j]]
    shown = [losses, *([np.array([front.fedavg.losses])[:, [i, j]]] if front.fedavg else [])]
    top = 1.15 * np.concatenate(shown).max(axis=0)
    if front.minima is not None:
        top = np.maximum(top, 1.3 * np.array([front.minima[i], front.minima[j]]))
        _infeasible(ax, front.minima[i], front.minima[j])
    free = front.non_dominated
    for point, at, colour, is_free in zip(front.points, losses, _colours(front), free, strict=True):
        ray = np.array([1 / point.preference[i], 1 / point.preference[j]])
        end = ray * (top / ray).min()
        ax.plot([0, end[0]], [0, end[1]], color=colour, lw=1.2, alpha=0.55, zorder=2)
        ax.plot(
            *at,
            "o",
            ms=9,
            color=colour,
            mfc=colour if is_free else "white",
            mew=1.8,
            zorder=4,
            label=ratio_text(point.preference),
        )
        if len(front.objectives) == 2:
            ax.annotate(ratio_text(point.preference), at, xytext=(8, 6), textcoords="offset points", zorder=6)
    if len(front.objectives) == 2:
        order = np.argsort(losses[free, 0])
        ax.plot(*losses[free][order].T, color="0.35", lw=1, zorder=3)
    if not free.all():
        ax.plot([], [], "o", ms=9, mfc="white", mec="0.35", mew=1.8, label="dominated")
    if front.fedavg is not None:
        ax.plot(front.fedavg.losses[i], front.fedavg.losses[j], "kx", ms=9, mew=2, zorder=5, label="FedAvg")
    ax.set(
        xlim=(0, top[0]), ylim=(0, top[1]), xlabel=f"{front.objectives[i]} loss", ylabel=f"{front.objectives[j]} loss"
    )


def _infeasible(ax: Axes, x: float, y: float) -> None:
    ax.axvspan(0, x, color=INFEASIBLE, lw=0, zorder=0)
    ax.axhspan(0, y, color=INFEASIBLE, lw=0, zorder=0)
    ax.axvline(x, color="0.3", ls="--", lw=1, zorder=1)
    ax.axhline(y, color="0.3", ls="--", lw=1, zorder=1, label="trained alone")


def _parallel(front: Front) -> Figure:
    """A line for each point over the objectives; dominated ones are dotted."""
    M = len(front.objectives)
    figure = Figure(figsize=(max(7.0, 0.8 * M + 3), 4.6), layout="constrained")
    ax = figure.subplots()
    lines = zip(front.points, front.losses, _colours(front), front.non_dominated, strict=True)
    for point, losses, colour, free in lines:
        ax.plot(range(M), losses, "-o" if free else ":o", ms=4, color=colour, label=ratio_text(point.preference))
    if front.fedavg is not None:
        ax.plot(range(M), front.fedavg.losses, "k-x", lw=1, label="FedAvg")
    if front.minima is not None:
        ax.plot(range(M), front.minima, "--", color="0.3", lw=1, label="trained alone")
        ax.fill_between(range(M), 0, front.minima, color=INFEASIBLE, lw=0)
    ax.set_xticks(range(M), front.objectives, rotation=0 if M <= 6 else 40, ha="center" if M <= 6 else "right")
    ax.set(ylabel="loss", ylim=(0, None), xlim=(-0.2, M - 0.8))
    ax.grid(axis="x", alpha=0.4)
    figure.legend(loc="outside right upper", fontsize="small")
    _title(figure, front)
    return figure
