"""Charts as data: what a figure shows, apart from how it is drawn.

One `Chart` is drawn twice: by `static.draw` as a picture, and by `page` as an interactive figure. It can be written as
JSON, so a figure outlives the runs that it came from.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
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
"""By label: a method has the same colour in every figure, and no other label of that figure has it. All of them can be
told apart by people who see few colours."""

PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#7f7f7f", "#000000", "#8c564b", "#bcbd22", "#9467bd", "#17becf"),
)
"""For all other labels, in order."""

Style = Literal["line", "marked", "points", "hollow", "dashed", "ray", "bar"]


@dataclass(frozen=True)
class Line:
    """One line, or points without one.

    Attributes:
        label: what it is; lines of one label share a colour and an entry of the legend.
        x: positions by the name of the x-axis: a line may be shown over rounds or over uploaded bytes. For a
            radial panel there is none, since positions are the panel's spokes.
        y: values.
        low, high: a band around them, if there is one; the ends of an error bar on a bar.
        style: how it is drawn. A "ray" is a thin line without an entry in the legend; bars at one position are stacked.
        colour: by default the label's.
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
    """One pair of axes.

    Attributes:
        title: above it.
        y: what the values are.
        lines: what it shows.
        x_log, y_log: logarithmic axes.
        spokes: names of the directions of a radial plot; none for an ordinary one.
        ticks: names of the positions 0, 1, … of the x-axis; none for numbers.
        infeasible: (x, y) below which nothing can lie; empty for none.
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
        """The names of the x-axes that every line has."""
        own = [list(line.x) for line in self.lines]
        return [name for name in own[0] if all(name in names for names in own)] if own else []


@dataclass(frozen=True)
class Chart:
    """Panels that belong together.

    Attributes:
        name: of its files.
        title: above it.
        see: one sentence that says what a reader should see in it.
        panels: its panels.
        note: at what scale it was made.
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
        """A colour for each label, no two of them the same unless lines were given the same one."""
        given = {line.label: line.colour for panel in self.panels for line in panel.lines if line.colour}
        fixed = {label: COLOURS[label] for label in self.labels if label in COLOURS} | given
        others = distinct_colours(fixed.values())
        return {label: fixed.get(label) or next(others) for label in self.labels}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Chart:
        """From what `dataclasses.asdict` and JSON made of a chart; fields that panels had in earlier versions are left
        out."""
        known = [f.name for f in fields(Panel)]
        panels = []
        for panel in data["panels"]:
            lines = [Line(**line) for line in panel["lines"]]
            panels.append(Panel(**{**{name: panel[name] for name in known if name in panel}, "lines": lines}))
        return cls(**{**data, "panels": panels})


def distinct_colours(taken: Iterable[str] = ()) -> Iterator[str]:
    """Colours that all differ and are not taken: those of the palette, then hues at the golden ratio, without end.

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
    """Every n-th value, and the last one: at most about `most`, which is more than a screen can show.

    >>> thinned([0, 1, 2, 3, 4, 5, 6], most=3)
    [0, 3, 6]
    """
    step = max(1, -(-len(values) // most))
    kept = list(values[::step])
    return kept if not values or (len(values) - 1) % step == 0 else [*kept, values[-1]]
