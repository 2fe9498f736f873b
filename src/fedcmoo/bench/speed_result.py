"""The numbers of `fedcmoo bench speed`, as tables, JSON and a figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class EngineSpeed:
    """The measurements of rounds on one engine; all numbers are medians.

    Attributes:
        engine: its name.
        seconds: seconds of a round.
        phases: the same by phase; "server" is the server's work between requests to clients.
        evaluation: seconds of one evaluation on the test and validation data.
        baseline: seconds of the same passes in a plain PyTorch loop on one thread.
        ratio: the ratio of a round to the following round of the baseline.
        outside_clients: the share of a round outside clients' work: sampling, sums, messages, weights. Known only for
            the local engine.
        coding: the share of processor time for compressing and decoding updates. Known only for the local engine, if
            updates are compressed.
        clients_per_second: clients per second, through all phases.
        peak_bytes: peak memory of this process and its workers; memory shared by workers counts for each of them.
    """

    engine: str
    seconds: float
    phases: Mapping[str, float]
    evaluation: float
    baseline: float
    ratio: float
    outside_clients: float | None
    coding: float | None
    clients_per_second: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Measured:
    """One size of the synthetic problem: the size, the model's parameters, processor seconds per round, peak memory."""

    value: int
    parameters: int
    seconds: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Growth:
    """Measurements that differ in one size only."""

    what: str
    points: Sequence[Measured]


@dataclass(frozen=True)
class SpeedBench:
    """All measurements, with their settings."""

    problem: str
    clients_per_round: int
    local_steps: int
    batch_size: int | None
    engines: Sequence[EngineSpeed]
    growth: Sequence[Growth]

    def tables(self) -> list[Table]:
        """One table of the engines, and one for each size that grows."""
        return [self._engines(), *(_growth_table(growth) for growth in self.growth)]

    def summary(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        machine = {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        return {**asdict(self), "machine": machine}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot the engines beside the baseline and each size that grows, and save the picture if a path is given."""
        panels = [self._engines_panel(), *(_growth_panel(growth) for growth in self.growth)]
        see = "Seconds of a round by phase, beside a plain PyTorch loop; time of a round as a synthetic problem grows."
        return draw(Chart("speed", f"Speed of {self.problem}", see, panels), path)

    @property
    def _phases(self) -> list[str]:
        return list(dict.fromkeys(phase for speed in self.engines for phase in speed.phases))

    def _engines_panel(self) -> Panel:
        x = {"engine": [float(n) for n in range(1, 1 + len(self.engines))]}
        lines = [Line("baseline", {"engine": [0.0]}, [self.engines[0].baseline], style="bar", colour="#999999")]
        lines += [Line(p, x, [s.phases.get(p, 0.0) for s in self.engines], style="bar") for p in self._phases]
        ticks = ["baseline", *(speed.engine for speed in self.engines)]
        return Panel("seconds per round", "seconds", lines, ticks=ticks)

    def _engines(self) -> Table:
        batch = "all samples" if self.batch_size is None else f"batch {self.batch_size}"

        def row(name: str, text: Callable[[EngineSpeed], str]) -> list[str]:
            return [name, *map(text, self.engines)]

        rows = [
            row("a round", lambda speed: f"{speed.seconds:.3f} s"),
            *([f"  {p}", *(f"{s.phases.get(p, 0.0):.3f} s" for s in self.engines)] for p in self._phases),
            row("the baseline", lambda speed: f"{speed.baseline:.3f} s"),
            row("ratio", lambda speed: f"{speed.ratio:.2f}"),
            row("not in clients", lambda s: "–" if s.outside_clients is None else f"{s.outside_clients:.1%}"),
            row("compression of updates", lambda s: "–" if s.coding is None else f"{s.coding:.1%}"),
            row("clients a second", lambda speed: f"{speed.clients_per_second:.1f}"),
            row("an evaluation", lambda speed: f"{speed.evaluation:.3f} s"),
            row("peak memory", lambda speed: size(speed.peak_bytes)),
        ]
        title = f"{self.problem}: {self.clients_per_round} clients a round, {self.local_steps} local steps, {batch}"
        note = "baseline: the same passes in a plain PyTorch loop on one thread"
        return Table("speed", title, ["", *(speed.engine for speed in self.engines)], rows, note=note)


def _growth_table(growth: Growth) -> Table:
    first = growth.points[0].seconds
    rows = [
        [f"{p.value:,}", f"{p.parameters:,}", f"{p.seconds:.3f}", f"{p.seconds / first:.2f}", size(p.peak_bytes)]
        for p in growth.points
    ]
    title = f"growth with {growth.what}: local rounds of a synthetic problem"
    header = [growth.what, "parameters", "processor s a round", "x the first", "peak memory"]
    return Table(f"growth-{growth.what}", title, header, rows)


def _growth_panel(growth: Growth) -> Panel:
    """A panel of time relative to the smallest size, with a dashed line for proportional growth."""
    by_size = growth.what == "width"
    at = [float(point.parameters if by_size else point.value) for point in growth.points]
    times = [point.seconds / growth.points[0].seconds for point in growth.points]
    x = {"parameters" if by_size else growth.what: at}
    lines = [
        Line("in proportion", x, [value / at[0] for value in at], style="dashed", colour="#999999"),
        Line("measured", x, times, style="marked"),
    ]
    y_range = (0.5, max(2.0, 1.5 * max(times)))
    return Panel("time of a round", "times the first", lines, x_log=True, y_log=True, y_range=y_range)
