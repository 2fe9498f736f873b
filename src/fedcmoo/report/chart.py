"""Charts as data: the content of a figure, independent of how it is drawn.

A `Chart` can be drawn as a picture (`static.draw`) or as an interactive figure (`page`). It can be saved as JSON, so a
figure can be redrawn without its runs.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Literal

COLOURS = {
    "FedCMOO": "#0072b2",
    "FedCMOO-Pref": "#009e73",
    "FedCMOO-T": "#56b4e9",
    "FSMGDA": "#d55e00",
    "FedAvg": "#7f7f7f",
    "MGDA": "#cc79a7",
}
"""Colours by label: a method has the same colour in every figure, which no other label of the figure has. All of
them can be distinguished by colour-blind readers."""

PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#7f7f7f", "#000000", "#8c564b", "#bcbd22", "#9467bd", "#17becf"),
)
"""Colours of all other labels, in order."""

Style = Literal["line", "marked", "points", "hollow", "dashed", "ray", "bar"]


@dataclass(frozen=True)
class Line:
    """One line, set of points, or set of bars.

    Attributes:
        label: the name in the legend; lines with the same label share a colour and a legend entry.
        x: positions by the name of the x-axis, since a line may be shown over rounds or over uploaded bytes. Empty for
            a radial panel, whose positions are its spokes.
        y: values.
        low, high: a band around the values, if any; for a bar, the ends of its error bar.
        style: how it is drawn. A "ray" is a thin line without an entry in the legend; bars at one position are stacked.
        colour: the label's colour by default.
    """

    label: str
    x: Mapping[str, Sequence[float]]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: Style = "line"
    colour: str | None = None


@dataclass(frozen=True)
class Panel:
    """One panel of a chart: a pair of axes.

    Attributes:
        title: above it.
        y: what the values are.
        lines: what it shows.
        x_log, y_log: logarithmic axes.
        spokes: names of the directions of a radial plot; none for an ordinary one.
        ticks: names of the positions 0, 1, … of the x-axis; none for numbers.
        infeasible: (x, y) below which no point is feasible; empty for none.
        x_range, y_range: (lowest, highest) value shown; empty to fit the lines.
    """

    title: str
    y: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    spokes: Sequence[str] = ()
    ticks: Sequence[str] = ()
    infeasible: Sequence[float] = ()
    x_range: Sequence[float] = ()
    y_range: Sequence[float] = ()

    @property
    def axes(self) -> list[str]:
        """The names of the x-axes that all lines have."""
        own = [list(line.x) for line in self.lines]
        return [name for name in own[0] if all(name in names for names in own)] if own else []


@dataclass(frozen=True)
class Chart:
    """A figure: one or more panels.

    Attributes:
        name: of its files.
        title: above it.
        see: one sentence on what the reader should see.
        panels: its panels.
        note: the scale at which it was made.
    """

    name: str
    title: str
    see: str
    panels: Sequence[Panel]
    note: str = ""

    @property
    def labels(self) -> list[str]:
        """The entries of the legend, in order."""
        return list(dict.fromkeys(line.label for panel in self.panels for line in panel.lines if line.style != "ray"))

    @property
    def colours(self) -> dict[str, str]:
        """A colour for each label, all different unless lines were given the same colour."""
        given = {line.label: line.colour for panel in self.panels for line in panel.lines if line.colour}
        fixed = {label: COLOURS[label] for label in self.labels if label in COLOURS} | given
        others = distinct_colours(fixed.values())
        return {label: fixed.get(label) or next(others) for label in self.labels}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Chart:
        """Restore a chart from its `dataclasses.asdict` JSON."""
        panels = [Panel(**{**panel, "lines": [Line(**line) for line in panel["lines"]]}) for panel in data["panels"]]
        return cls(**{**data, "panels": panels})


def distinct_colours(taken: Iterable[str] = ()) -> Iterator[str]:
    """An endless iterator of different colours not yet taken: the palette's, then hues spaced by the golden ratio.

    >>> next(distinct_colours(taken=["#0072b2"]))
    '#d55e00'
    """
    used = set(taken)
    hues = (colorsys.hsv_to_rgb(n * 0.618034 % 1, 0.75, 0.8) for n in count())
    for colour in chain(PALETTE, ("#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in hues)):
        if colour not in used:
            used.add(colour)
            yield colour


def thinned(values: Sequence[float], most: int = 400) -> list[float]:
    """Every n-th value and the last one, at most about `most` values.

    >>> thinned([0, 1, 2, 3, 4, 5, 6], most=3)
    [0, 3, 6]
    """
    step = max(1, -(-len(values) // most))
    kept = list(values[::step])
    return kept if not values or (len(values) - 1) % step == 0 else [*kept, values[-1]]
