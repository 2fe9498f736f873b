"""The result of a sweep over preferences: the points of the front, their table, figure and models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcmoo.evaluation import Scores
from fedcmoo.files import write_json
from fedcmoo.metrics import angle, hypervolume, non_dominated
from fedcmoo.pareto.point import Point
from fedcmoo.pareto.preferences import ratio_text
from fedcmoo.report.chart import Chart, Line, Panel, distinct_colours
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table
from fedcmoo.types import Matrix
from fedcmoo.weights.preference import check_preference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "front.json"

PLANES = 3
"""Up to this many objectives, a chart has a panel for each pair of them."""

VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
ALONE, FEDAVG = "#666666", "#000000"

COLOUR_IS_PREFERENCE = "A colour is a preference. "
DOMINATED = "hollow dots are dominated by another one or by a baseline"
SEE_PLANE = (
    f"{COLOUR_IS_PREFERENCE}Each dot should lie on the ray of its colour; {DOMINATED}. Dashed lines are the losses of "
    "objectives trained alone, and nothing should lie in the grey beyond them."
)
SEE_PLANES = (
    f"{COLOUR_IS_PREFERENCE}Each panel shows two of the three losses: the dot should lie on the ray of its colour in "
    f"all of them; {DOMINATED} in three dimensions. Dashed lines are the losses of objectives trained alone."
)
SEE_PARALLEL = (
    f"{COLOUR_IS_PREFERENCE}Each line joins the losses of one model over the objectives: an objective with a large "
    "number in the preference should have a small loss. Dashed lines are dominated."
)


@dataclass(frozen=True, repr=False)
class Front:
    """The points of a sweep, and the baselines to compare them with.

    Attributes:
        problem: its name.
        objectives: their names.
        points: one for each preference.
        reference: the losses [M] from which the hypervolume is measured: a tenth above the largest of the untrained
            model, the points and FedAvg.
        single: a run for each objective alone, in their order; empty if there were none.
        fedavg: FedAvg on the average loss, if it was run.
    """

    problem: str
    objectives: tuple[str, ...]
    points: tuple[Point, ...]
    reference: tuple[float, ...]
    single: tuple[Point, ...] = ()
    fedavg: Point | None = None

    @property
    def losses(self) -> Matrix:
        """The losses of all points, [n, M]."""
        return np.array([point.losses for point in self.points])

    @property
    def baselines(self) -> tuple[Point, ...]:
        """The runs for one objective alone, and FedAvg."""
        return self.single if self.fedavg is None else (*self.single, self.fedavg)

    @property
    def non_dominated(self) -> NDArray[np.bool_]:
        """Which points are dominated by no other point and no baseline, [n]."""
        return non_dominated([*self.losses, *(point.losses for point in self.baselines)])[: len(self.points)]

    @property
    def hypervolume(self) -> float:
        """The hypervolume that the points dominate, measured from the reference."""
        return hypervolume(self.losses, self.reference)

    @property
    def hypervolume_with_baselines(self) -> float:
        """The hypervolume that the points and the baselines dominate together."""
        return hypervolume([*self.losses, *(point.losses for point in self.baselines)], self.reference)

    @property
    def minima(self) -> list[float] | None:
        """Each objective's loss when it is trained alone, [M]."""
        return [point.losses[k] for k, point in enumerate(self.single)] or None

    def __repr__(self) -> str:
        return f"<Front of {self.problem}: {len(self.points)} points>"

    def pick(self, preference: Sequence[float]) -> Point:
        """The non-dominated point whose losses are nearest, in angle, to a preference."""
        check_preference(preference, len(self.objectives))
        candidates = [point for point, free in zip(self.points, non_dominated(self.losses), strict=True) if free]
        return min(candidates, key=lambda point: angle(point.losses, preference))

    def table(self) -> Table:
        """A table of the points (losses, first metrics, angle, whether dominated), followed by the baselines."""
        metrics = _first_metrics(self.points[0].scores)
        header = ["asked", *(f"{name} loss" for name in self.objectives)]
        header += [*(f"{name} {metric}" for name, metric in metrics.items()), "angle", "dominated"]
        rows = [[*_cells(point, metrics), f"{point.angle:.1f}°", self._dominated_by(point)] for point in self.points]
        rows += [[*_cells(point, metrics), "", ""] for point in self.baselines]
        note = f"hypervolume {self.hypervolume:.4g}"
        if self.baselines:
            note += f"; with the baselines {self.hypervolume_with_baselines:.4g}"
        if self.fedavg is not None:
            note += f"; FedAvg's alone {hypervolume([self.fedavg.losses], self.reference):.4g}"
        return Table("front", f"the front of {self.problem}", header, rows, note=note)

    def _dominated_by(self, point: Point) -> str:
        """The table's text on dominance: "by" a baseline if one dominates the point, else "yes" or nothing."""
        for baseline in self.baselines:
            if not non_dominated([point.losses, baseline.losses])[0]:
                return f"by {baseline.label}"
        return "" if self.non_dominated[self.points.index(point)] else "yes"

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()

    def summary(self) -> dict[str, Any]:
        """The front as plain data, for JSON."""
        points = [
            _plain(point)
            | {"preference": list(point.preference), "angle": point.angle, "kl": point.kl, "dominated": not free}
            for point, free in zip(self.points, self.non_dominated.tolist(), strict=True)
        ]
        return {
            "problem": self.problem,
            "objectives": list(self.objectives),
            "hypervolume": self.hypervolume,
            "hypervolume_with_baselines": self.hypervolume_with_baselines,
            "reference": list(self.reference),
            "points": points,
            "single": [_plain(point) for point in self.single],
            "fedavg": None if self.fedavg is None else _plain(self.fedavg),
        }

    def save(self, folder: Path) -> None:
        """Write `front.json` and `front.png`."""
        write_json(folder / FILE, self.summary())
        self.plot(folder / "front.png")

    @classmethod
    def load(cls, folder: str | Path) -> Front:
        """Read what `save` wrote."""
        path = Path(folder) / FILE
        if not path.exists():
            raise ValueError(f"{folder} must be the folder of a finished sweep, but has no {FILE}")
        data = json.loads(path.read_text())

        def point(entry: dict[str, Any]) -> Point:
            place = Path(folder) / entry["folder"]
            return Point(entry["label"], entry["scores"], tuple(entry.get("preference", ())), place)

        return cls(
            problem=data["problem"],
            objectives=tuple(data["objectives"]),
            points=tuple(point(entry) for entry in data["points"]),
            reference=tuple(data["reference"]),
            single=tuple(point(entry) for entry in data["single"]),
            fedavg=None if data["fedavg"] is None else point(data["fedavg"]),
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot the losses with the preference rays and the single-objective minima (with four objectives or more, in
        parallel coordinates), and save the picture if a path is given."""
        return draw(front_chart("front", f"{self.problem}: losses for each preference", [self]), path)


def pick(folder: str | Path, preference: Sequence[float]) -> Point:
    """The non-dominated point nearest to a preference in a sweep's folder; its `load` gives the model."""
    return Front.load(folder).pick(preference)


def _first_metrics(scores: Scores) -> dict[str, str]:
    """The first metric besides the loss, by objective."""
    found = {name: next((m for m in values if m != "loss"), None) for name, values in scores.items()}
    return {name: metric for name, metric in found.items() if metric is not None}


def _cells(point: Point, metrics: dict[str, str]) -> list[str]:
    losses = [f"{loss:.4g}" for loss in point.losses]
    return [point.label, *losses, *(f"{point.scores[name][metric]:.4f}" for name, metric in metrics.items())]


def _plain(point: Point) -> dict[str, Any]:
    return {"label": point.label, "scores": point.scores, "folder": f"{point.folder.parent.name}/{point.folder.name}"}


def front_chart(name: str, title: str, fronts: Sequence[Front], note: str = "") -> Chart:
    """A chart with a panel for each pair of objectives of each front; parallel coordinates for more than three."""
    panels: list[Panel] = []
    for front in fronts:
        M = len(front.objectives)
        planes = [_plane(front, i, j) for i, j in list(combinations(range(M), 2)) or [(0, 0)]]
        panels += planes if M <= PLANES else [_parallel(front)]
    largest = max(len(front.objectives) for front in fronts)
    see = SEE_PLANE if largest < PLANES else SEE_PLANES if largest == PLANES else SEE_PARALLEL
    return Chart(name, title, see, panels, note)


def _colours(front: Front) -> list[str]:
    """A colour for each point: along a scale for two objectives, whose preferences are ordered; else all different."""
    n = len(front.points)
    if len(front.objectives) > 2:
        return list(islice(distinct_colours([ALONE, FEDAVG]), n))
    at = np.linspace(0, 0.92, n) * (len(VIRIDIS) - 1)
    channels = [np.interp(at, range(len(VIRIDIS)), [colour[k] for colour in VIRIDIS]) for k in range(3)]
    return [f"#{round(r):02x}{round(g):02x}{round(b):02x}" for r, g, b in zip(*channels, strict=True)]


def _plane(front: Front, i: int, j: int) -> Panel:
    """A panel of the losses of objectives i and j with the preference rays; the axes are fitted to the points."""
    x, pair = f"{front.objectives[i]} loss", [i, j]
    minima = None if front.minima is None else np.array(front.minima)[pair]
    baselines = [] if front.fedavg is None else [np.array(front.fedavg.losses)[pair]]
    shown = np.vstack([front.losses[:, pair], *baselines, *([] if minima is None else [minima])])
    margin = 0.12 * np.maximum(np.ptp(shown, axis=0), 0.02 * shown.max(axis=0))
    low, high = np.maximum(shown.min(axis=0) - margin, 0), shown.max(axis=0) + margin
    lines = []
    for point, colour, free in zip(front.points, _colours(front), front.non_dominated, strict=True):
        ray = 1 / np.array(point.preference)[pair]
        end = ray * (high / ray).max()
        label, losses = ratio_text(point.preference), np.array(point.losses)[pair]
        lines.append(Line(label, {x: [0.0, end[0]]}, [0.0, end[1]], style="ray", colour=colour))
        lines.append(Line(label, {x: [losses[0]]}, [losses[1]], style="points" if free else "hollow", colour=colour))
    lines += [Line("FedAvg", {x: [at[0]]}, [at[1]], style="points", colour=FEDAVG) for at in baselines]
    return Panel(
        front.problem if len(front.objectives) < PLANES else f"{front.objectives[i]} and {front.objectives[j]}",
        f"{front.objectives[j]} loss",
        lines,
        infeasible=() if minima is None else minima.tolist(),
        x_range=(low[0], high[0]),
        y_range=(low[1], high[1]),
    )


def _parallel(front: Front) -> Panel:
    """A line for each point over the objectives."""
    x = {"objective": [float(k) for k in range(len(front.objectives))]}
    lines = [
        Line(ratio_text(point.preference), x, point.losses, style="marked" if free else "dashed", colour=colour)
        for point, colour, free in zip(front.points, _colours(front), front.non_dominated, strict=True)
    ]
    if front.fedavg is not None:
        lines.append(Line("FedAvg", x, front.fedavg.losses, style="marked", colour=FEDAVG))
    if front.minima is not None:
        lines.append(Line("trained alone", x, front.minima, style="dashed", colour=ALONE))
    return Panel(front.problem, "loss", lines, ticks=front.objectives)
