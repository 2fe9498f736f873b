"""A front as a chart: the losses that a sweep over preferences reached, with the rays that were asked for."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from fedcmoo.pareto import Front, ratio_text
from fedcmoo.report.chart import Chart, Line, Panel

SEE = (
    "A colour is a preference: the dot should lie on the ray of its colour; hollow dots are dominated. Dashed lines "
    "are the losses of objectives trained alone, and nothing should lie in the grey beyond them."
)


def front_chart(name: str, title: str, fronts: Sequence[Front], note: str = "") -> Chart:
    """A panel for each front: the plane of two objectives, or parallel coordinates of more."""
    panels = [_plane(front) if len(front.objectives) == 2 else _parallel(front) for front in fronts]
    return Chart(name, title, SEE, panels, note)


def _colours(n: int) -> list[str]:
    return [to_hex(matplotlib.colormaps["viridis"](x)) for x in np.linspace(0, 0.92, n)]


def _plane(front: Front) -> Panel:
    x, y = (f"{name} loss" for name in front.objectives)
    shown = front.losses if front.fedavg is None else np.vstack([front.losses, front.fedavg.losses])
    top = 1.15 * np.maximum(shown.max(axis=0), front.minima or 0.0)
    lines = []
    for point, colour, free in zip(front.points, _colours(len(front.points)), front.non_dominated, strict=True):
        label, losses = ratio_text(point.preference), point.losses
        ray = 1 / np.array(point.preference)
        end = ray * (top / ray).min()
        lines.append(Line(label, {x: [0.0, end[0]]}, [0.0, end[1]], style="ray", colour=colour))
        lines.append(Line(label, {x: [losses[0]]}, [losses[1]], style="points" if free else "hollow", colour=colour))
    if front.fedavg is not None:
        lines.append(Line("FedAvg", {x: [front.fedavg.losses[0]]}, [front.fedavg.losses[1]], style="points"))
    return Panel(front.problem, y, lines, infeasible=front.minima or (), from_zero=True)


def _parallel(front: Front) -> Panel:
    """A line for each point over the objectives, as a radial panel."""
    points = zip(front.points, _colours(len(front.points)), strict=True)
    lines = [Line(ratio_text(p.preference), {}, p.losses, colour=colour) for p, colour in points]
    if front.minima is not None:
        lines.append(Line("trained alone", {}, front.minima, colour="#666666"))
    return Panel(front.problem, "loss", lines, spokes=front.objectives)
