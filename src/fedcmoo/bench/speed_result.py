"""The numbers of `fedcmoo bench speed`, as tables, JSON and a figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Group
from rich.table import Table

from fedcmoo.result import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class EngineSpeed:
    """Rounds on one engine; all numbers are medians.

    Attributes:
        engine: its name.
        seconds: of a round.
        phases: the same by phase; "server" is all that the server does between asks.
        evaluation: seconds of one evaluation on the test and validation data.
        floor: seconds of the same passes in a plain PyTorch loop on one thread.
        ratio: of a round to the round of the floor after it.
        outside_clients: the share of a round that is not clients' work: sampling, sums, messages, weights. Known of
            the local engine only.
        clients_per_second: through all phases.
        peak_bytes: the most memory of this process and its workers; what workers share counts for each of them.
    """

    engine: str
    seconds: float
    phases: Mapping[str, float]
    evaluation: float
    floor: float
    ratio: float
    outside_clients: float | None
    clients_per_second: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Point:
    """A size of the synthetic problem: what it was, the model's parameters, processor seconds a round, peak memory."""

    value: int
    parameters: int
    seconds: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Growth:
    """Points that differ in one thing."""

    what: str
    points: Sequence[Point]


@dataclass(frozen=True)
class SpeedBench:
    """Everything that was measured, and on what."""

    problem: str
    clients_per_round: int
    local_steps: int
    batch_size: int | None
    engines: Sequence[EngineSpeed]
    growth: Sequence[Growth]

    def table(self) -> Group:
        """Tables for people."""
        return Group(self._engines(), *(self._growth(growth) for growth in self.growth))

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
        """A panel with the engines beside the floor, and one for each thing that grows."""
        from matplotlib.figure import Figure

        columns = min(3, 1 + len(self.growth))
        rows = -(-(1 + len(self.growth)) // columns)
        figure = Figure(figsize=(3.8 * columns, 3.2 * rows), layout="constrained")
        first, *others = figure.subplots(rows, columns, squeeze=False).flat
        self._draw_engines(first)
        for ax, growth in zip(others, self.growth, strict=False):
            _draw_growth(ax, growth)
        for ax in others[len(self.growth) :]:
            ax.set_axis_off()
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def _draw_engines(self, ax: Axes) -> None:
        names = ["floor", *(speed.engine for speed in self.engines)]
        bottom = [0.0] * len(names)
        ax.bar("floor", self.engines[0].floor if self.engines else 0.0, color="0.6")
        for phase in dict.fromkeys(phase for speed in self.engines for phase in speed.phases):
            heights = [0.0, *(speed.phases.get(phase, 0.0) for speed in self.engines)]
            ax.bar(names, heights, bottom=bottom, label=phase)
            bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
        ax.set_title(f"seconds a round, {self.problem}")
        ax.legend(fontsize="small")

    def _engines(self) -> Table:
        batch = "all samples" if self.batch_size is None else f"batch {self.batch_size}"
        table = Table(
            title=f"{self.problem}: {self.clients_per_round} clients a round, {self.local_steps} local steps, {batch}"
        )
        table.add_column("")
        for speed in self.engines:
            table.add_column(speed.engine, justify="right")

        def row(name: str, text: Callable[[EngineSpeed], str]) -> None:
            table.add_row(name, *map(text, self.engines))

        row("a round", lambda speed: f"{speed.seconds:.3f} s")
        for phase in dict.fromkeys(phase for speed in self.engines for phase in speed.phases):
            row(f"  {phase}", lambda speed, phase=phase: f"{speed.phases.get(phase, 0.0):.3f} s")  # type: ignore[misc]
        row("the floor", lambda speed: f"{speed.floor:.3f} s")
        row("ratio", lambda speed: f"{speed.ratio:.2f}")
        row("not in clients", lambda speed: "–" if speed.outside_clients is None else f"{speed.outside_clients:.1%}")
        row("clients a second", lambda speed: f"{speed.clients_per_second:.1f}")
        row("an evaluation", lambda speed: f"{speed.evaluation:.3f} s")
        row("peak memory", lambda speed: _memory(speed.peak_bytes))
        table.caption = "floor: the same passes in a plain PyTorch loop on one thread"
        return table

    def _growth(self, growth: Growth) -> Table:
        table = Table(title=f"growth with {growth.what}: local rounds of a synthetic problem")
        for name in (growth.what, "parameters", "processor s a round", "x the first", "peak memory"):
            table.add_column(name, justify="right")
        first = growth.points[0].seconds
        for point in growth.points:
            table.add_row(
                f"{point.value:,}",
                f"{point.parameters:,}",
                f"{point.seconds:.3f}",
                f"{point.seconds / first:.2f}",
                _memory(point.peak_bytes),
            )
        return table


def _draw_growth(ax: Axes, growth: Growth) -> None:
    """Time relative to the smallest size's, with a dashed line where it would grow in proportion."""
    by_size = growth.what == "width"
    x = [point.parameters if by_size else point.value for point in growth.points]
    y = [point.seconds / growth.points[0].seconds for point in growth.points]
    ax.plot(x, [value / x[0] for value in x], "--", color="0.7", label="in proportion")
    ax.plot(x, y, "o-", label="measured")
    ax.set(
        xscale="log", yscale="log", ylim=(0.5, max(2.0, 1.5 * max(y))), xlabel="parameters" if by_size else growth.what
    )
    ax.set_xticks(x, [f"{value:,}" for value in x])
    ax.yaxis.set_major_formatter("{x:g} x")
    ax.minorticks_off()
    ax.set_title("time of a round")
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small", loc="upper left")


def _memory(nbytes: int | None) -> str:
    return "–" if nbytes is None else size(nbytes)
