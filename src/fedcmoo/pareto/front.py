"""What a sweep over preferences gives: the points of the front, their table, figure and models."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from fedcmoo.evaluation import Scores
from fedcmoo.files import write_atomically
from fedcmoo.metrics.front import angle, hypervolume, non_dominated
from fedcmoo.types import Matrix
from fedcmoo.weights.preference import check_preference, non_uniformity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "front.json"


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        label: what it is called in tables and figures.
        scores: its final losses and metrics by objective.
        preference: what was asked for; empty for a baseline.
        folder: of the run, with its model.
    """

    label: str
    scores: Scores
    preference: tuple[float, ...]
    folder: Path

    @property
    def losses(self) -> list[float]:
        """The final losses, [M]."""
        return [values["loss"] for values in self.scores.values()]

    @property
    def angle(self) -> float:
        """Degrees between the losses and the ray that was asked for."""
        return angle(self.losses, self.preference)

    @property
    def kl(self) -> float:
        """The non-uniformity μ_r of the losses."""
        return non_uniformity(check_preference(self.preference), np.array(self.losses))

    def load(self, model: nn.Module) -> nn.Module:
        """A copy of a model (the problem's) with this point's parameters."""
        model = copy.deepcopy(model)
        model.load_state_dict(safetensors.torch.load_file(self.folder / "model.safetensors"))
        return model


@dataclass(frozen=True)
class Front:
    """The points that a sweep reached, and what to compare them with.

    Attributes:
        problem: its name.
        objectives: their names.
        points: one for each preference.
        reference: the losses [M] from which the hypervolume is measured: a tenth above those of the untrained model.
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
    def non_dominated(self) -> NDArray[np.bool_]:
        """Which points no other one dominates, [n]."""
        return non_dominated(self.losses)

    @property
    def hypervolume(self) -> float:
        """What the points dominate of the space below the reference."""
        return hypervolume(self.losses, self.reference)

    @property
    def minima(self) -> list[float] | None:
        """Each objective's loss when it is trained alone, [M]."""
        return [point.losses[k] for k, point in enumerate(self.single)] or None

    def pick(self, preference: Sequence[float]) -> Point:
        """The non-dominated point whose losses are nearest, in angle, to those of a preference."""
        check_preference(preference, len(self.objectives))
        candidates = [point for point, free in zip(self.points, self.non_dominated, strict=True) if free]
        return min(candidates, key=lambda point: angle(point.losses, preference))

    def table(self) -> Table:
        """Losses, first metrics, angle and whether a point is dominated; then the baselines."""
        table = Table(title=f"the front of {self.problem}")
        table.add_column("asked", no_wrap=True)
        for name in self.objectives:
            table.add_column(f"{name}\nloss", justify="right")
        metrics = _first_metrics(self.points[0].scores)
        for name, metric in metrics.items():
            table.add_column(f"{name}\n{metric}", justify="right")
        table.add_column("angle", justify="right")
        table.add_column("dominated", no_wrap=True)
        for point, free in zip(self.points, self.non_dominated, strict=True):
            table.add_row(*_cells(point, metrics), f"{point.angle:.1f}°", "" if free else "yes")
        table.add_section()
        for point in (*self.single, *([self.fedavg] if self.fedavg else [])):
            table.add_row(*_cells(point, metrics), "", "")
        table.caption = f"hypervolume {self.hypervolume:.4f}"
        if self.fedavg is not None:
            table.caption += f"; FedAvg's {hypervolume([self.fedavg.losses], self.reference):.4f}"
        return table

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=120).print(self.table())
        return text.getvalue()

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
            "reference": list(self.reference),
            "points": points,
            "single": [_plain(point) for point in self.single],
            "fedavg": None if self.fedavg is None else _plain(self.fedavg),
        }

    def save(self, folder: Path) -> None:
        """Write `front.json` and `front.png`."""
        write_atomically(folder / FILE, (json.dumps(self.summary(), indent=2) + "\n").encode())
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
        """The losses with the rays asked for and the single-objective minima; with four objectives or more, parallel
        coordinates."""
        from fedcmoo.report.pareto import plot_front

        figure = plot_front(self)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


def pick(folder: str | Path, preference: Sequence[float]) -> Point:
    """Of the sweep in a folder, the non-dominated point nearest to a preference; its `load` gives the model."""
    return Front.load(folder).pick(preference)


def _first_metrics(scores: Scores) -> dict[str, str]:
    """By objective, the first metric beside its loss."""
    found = {name: next((m for m in values if m != "loss"), None) for name, values in scores.items()}
    return {name: metric for name, metric in found.items() if metric is not None}


def _cells(point: Point, metrics: dict[str, str]) -> list[str]:
    losses = [f"{loss:.4f}" for loss in point.losses]
    return [point.label, *losses, *(f"{point.scores[name][metric]:.4f}" for name, metric in metrics.items())]


def _plain(point: Point) -> dict[str, Any]:
    return {"label": point.label, "scores": point.scores, "folder": f"{point.folder.parent.name}/{point.folder.name}"}
