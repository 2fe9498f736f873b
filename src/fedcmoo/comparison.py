"""Several methods and seeds on one problem: one table with mean and spread, one figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from fedcmoo.config import RunConfig, saved
from fedcmoo.files import write_atomically
from fedcmoo.history import Record, read_history
from fedcmoo.result import Result, size
from fedcmoo.settings import SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Comparison:
    """Results by label (a method), one for each seed."""

    results: Mapping[str, Sequence[Result]]

    def table(self) -> Table:
        """Mean ± standard deviation over seeds of every objective's metrics, and the upload."""
        first = next(iter(self.results.values()))[0]
        columns = [(name, metric) for name, values in first.scores.items() for metric in values]
        seeds = len(next(iter(self.results.values())))
        table = Table(title=f"{first.problem.name}, {len(first.history)} rounds, {seeds} seed{'s' * (seeds > 1)}")
        table.add_column("method")
        for name, metric in columns:
            table.add_column(f"{name} {metric}", justify="right")
        table.add_column("uploaded", justify="right")
        for label, results in self.results.items():
            cells = [_mean_and_spread([r.scores[name][metric] for r in results]) for name, metric in columns]
            table.add_row(label, *cells, size(float(np.mean([r.uploaded for r in results]))))
        return table

    def plot(self, path: str | Path | None = None, x: str = "round") -> Figure:
        """Mean over objectives of every metric, a line for each method, a band over seeds."""
        from fedcmoo.report.curves import plot_curves  # matplotlib takes a second to import

        runs: dict[str, list[Sequence[Record]]] = {k: [r.history for r in rs] for k, rs in self.results.items()}
        first = next(iter(self.results.values()))[0]
        figure = plot_curves(runs, x=x, title=first.problem.name)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def summary(self) -> list[dict[str, object]]:
        """The results as plain data, for JSON."""
        return [{"label": label, **r.summary()} for label, results in self.results.items() for r in results]


def compare(
    configs: Mapping[str, Sequence[RunConfig]],
    folder: Path,
    run: Callable[[RunConfig, Path, bool], Result] = lambda config, path, resume: config.run(path, resume=resume),
) -> Comparison:
    """Run every configuration in a folder of its own; what an earlier call finished is only read, what it began goes
    on. A folder with rounds of another configuration is an error, before anything runs.

    Args:
        configs: by label, one configuration for each seed.
        folder: of the comparison.
        run: how to run one (with a progress bar, say).
    """
    places = {
        label: [(config, folder / f"{label}-seed{config.seed}") for config in seeds] for label, seeds in configs.items()
    }
    begun = {path: _is_begun(config, path) for seeds in places.values() for config, path in seeds}
    results = {label: [run(config, path, begun[path]) for config, path in seeds] for label, seeds in places.items()}
    comparison = Comparison(results)
    comparison.plot(folder / "comparison.png")
    write_atomically(folder / "comparison.json", (json.dumps(comparison.summary(), indent=2) + "\n").encode())
    return comparison


def _is_begun(config: RunConfig, path: Path) -> bool:
    """Whether a folder has rounds of this configuration; an error if it has those of another."""
    if not read_history(path / "history.jsonl"):
        return False
    if not saved(path).computes_the_same_as(config):
        raise SettingsError(f"{path} already holds a run with other settings: choose another folder (--out)")
    return True


def _mean_and_spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}"
