"""Draw charts as pictures. Matplotlib takes a second to import, so it is imported only when something is drawn."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcmoo.files import write_atomically
from fedcmoo.report.chart import Chart, Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

IN_A_ROW = {1: 1, 2: 2, 4: 2}
"""Panels per row, by the number of panels; three for other numbers."""
WIDTH, HEIGHT = 4.2, 3.3
MOST_LABELS = 24
"""The largest number of labels in a legend; a larger legend would not fit and is left out."""
ROUND = "round"
EARLY = 10
"""The first tenth of the rounds does not determine the limits of curves."""

STYLES: dict[str, dict[str, Any]] = {
    "line": {"lw": 1.8},
    "marked": {"lw": 1.8, "marker": "o", "ms": 5},
    "points": {"lw": 0, "marker": "o", "ms": 8, "zorder": 4},
    "hollow": {"lw": 0, "marker": "o", "ms": 8, "mfc": "white", "mew": 1.8, "zorder": 4},
    "dashed": {"lw": 1.4, "ls": "--"},
    "ray": {"lw": 1.1, "alpha": 0.55},
    "bar": {"lw": 0, "marker": "s", "ms": 9},
}
"""Matplotlib keywords for lines, and the legend handle of each style."""


def draw(chart: Chart, path: str | Path | None = None, axis: str | None = None) -> Figure:
    """Draw the chart's panels, at most three per row, with the scale and one legend below them.

    Args:
        chart: what to draw.
        path: where to save the picture; None to not save it.
        axis: the x-axis to use if there are several; by default each panel's first.
    """
    from matplotlib.figure import Figure

    columns = IN_A_ROW.get(len(chart.panels), 3)
    rows = -(-len(chart.panels) // columns)
    figure = Figure(figsize=(max(WIDTH * columns, 6.0), HEIGHT * rows + 0.9), layout="constrained")
    colours = chart.colours
    for n, panel in enumerate(chart.panels, start=1):
        ax = figure.add_subplot(rows, columns, n, projection="polar" if panel.spokes else None)
        if panel.spokes:
            _radial(ax, panel, colours)
        else:
            axes = panel.axes or [""]  # none without lines, as for targets that no run reaches
            _panel(ax, panel, axis if axis in axes else axes[0], colours)
        ax.set_title(panel.title, fontsize="medium")
    if len(chart.labels) <= MOST_LABELS:
        _legend(figure, chart)
    figure.suptitle(chart.title)
    if path is not None:
        save(figure, Path(path))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's suffix (PNG, SVG, ...); the same figure gives the same bytes."""
    import io

    import matplotlib

    picture, suffix = io.BytesIO(), path.suffix.lower()
    about = {".svg": {"Date": None}, ".png": {"Software": None}}.get(suffix)
    with matplotlib.rc_context({"svg.hashsalt": "fedcmoo"}):
        figure.savefig(picture, format=suffix[1:] or "png", dpi=150, metadata=about)
    write_atomically(path, picture.getvalue())


def _panel(ax: Axes, panel: Panel, axis: str, colours: dict[str, str]) -> None:
    from matplotlib.ticker import MaxNLocator

    at = []
    heights: dict[float, float] = {}
    for line in panel.lines:
        colour = line.colour or colours.get(line.label, "0.5")
        x = np.asarray(line.x[axis], dtype=float)
        at.append(x)
        if line.style == "bar":
            spread = np.abs(np.array([line.low, line.high]) - line.y) if line.low else None
            ax.bar(x, line.y, bottom=[heights.get(p, 0.0) for p in x], color=colour, yerr=spread, capsize=4)
            heights |= {p: heights.get(p, 0.0) + y for p, y in zip(x, line.y, strict=True)}
            continue
        ax.plot(x, line.y, color=colour, **STYLES[line.style])
        if line.low:
            ax.fill_between(x, line.low, line.high, color=colour, alpha=0.18, lw=0)
    if panel.infeasible:
        x_least, y_least = panel.infeasible
        ax.axvspan(0, x_least, color="0.92", lw=0, zorder=0)
        ax.axhspan(0, y_least, color="0.92", lw=0, zorder=0)
        ax.axvline(x_least, color="0.4", ls="--", lw=1)
        ax.axhline(y_least, color="0.4", ls="--", lw=1)
    ax.set(xscale="log" if panel.x_log else "linear", yscale="log" if panel.y_log else "linear")
    ax.set(xlabel=axis, ylabel=panel.y, xlim=panel.x_range or None, ylim=panel.y_range or _settled(panel))
    if panel.x_log:
        _plain(ax.xaxis)
    elif panel.ticks:
        ax.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=0 if len(panel.ticks) <= 6 else 40)
    else:
        whole = all(bool((x % 1 == 0).all()) for x in at)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=whole))
    if panel.y_log:
        _plain(ax.yaxis)
    ax.grid(alpha=0.3)


def _settled(panel: Panel) -> tuple[float, float] | None:
    """Limits for curves over rounds that fit the values after the first tenth of the rounds, since the first steps are
    often larger than all later differences; None if nothing earlier is beyond them."""
    if ROUND not in panel.axes:
        return None
    last = max(max(line.x[ROUND], default=0) for line in panel.lines)
    early: list[float] = []
    late: list[float] = []
    for line in panel.lines:
        for values in (line.y, line.low, line.high):
            for at, value in zip(line.x[ROUND], values, strict=False):
                (late if at >= last / EARLY else early).append(value)
    low, high = np.nanmin(late), np.nanmax(late)
    if panel.y_log or not early or (low <= np.nanmin(early) and np.nanmax(early) <= high):
        return None
    margin = 0.05 * (high - low) or 0.05
    return low - margin, high + margin


def _plain(axis: Axis) -> None:
    """Label a logarithmic axis that spans few decades with plain numbers."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    if high < 30 * low:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def _radial(ax: Axes, panel: Panel, colours: dict[str, str]) -> None:
    angles = np.linspace(0, 2 * np.pi, len(panel.spokes), endpoint=False)
    for line in panel.lines:
        ax.plot(np.append(angles, angles[0]), [*line.y, line.y[0]], color=colours[line.label], **STYLES["line"])
    size = "xx-small" if len(panel.spokes) > 12 else "small"
    ax.set_xticks(angles, panel.spokes, fontsize=size)
    ax.tick_params(axis="y", labelsize="x-small")


def _legend(figure: Figure, chart: Chart) -> None:
    """Draw the scale and the labels below the panels. The scale is the legend's title, since the layout reserves room
    for a legend but not for separate text."""
    inches = figure.get_figwidth()
    widest = 0.7 + 0.09 * max(map(len, chart.labels), default=1)
    legend = figure.legend(
        handles=_handles(chart),
        loc="outside lower center",
        ncols=max(1, min(len(chart.labels), int(inches / widest))),
        frameon=False,
        title="\n".join(textwrap.wrap(chart.note, int(inches * 16))),
        title_fontsize="x-small",
    )
    legend.get_title().set(color="0.35", horizontalalignment="center")


def _handles(chart: Chart) -> list[Line2D]:
    """One entry for each label, in the style of its first line."""
    from matplotlib.lines import Line2D

    first: dict[str, Line] = {}
    for panel in chart.panels:
        for line in panel.lines:
            if line.style != "ray":
                first.setdefault(line.label, line)
    colours = chart.colours
    return [Line2D([], [], color=colours[label], label=label, **STYLES[line.style]) for label, line in first.items()]
