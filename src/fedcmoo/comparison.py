"""Several methods and seeds on one problem: one table with mean and spread, one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedcmoo.config import RunConfig, saved
from fedcmoo.files import write_json
from fedcmoo.history import read_history
from fedcmoo.report.run_charts import curves_chart, results_table, x_axis
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table
from fedcmoo.report.targets import Target, targets_table
from fedcmoo.result import Result
from fedcmoo.settings import SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results by label (a method), one for each seed."""

    results: Mapping[str, Sequence[Result]]

    @property
    def problem(self) -> str:
        """The problem's name."""
        return next(iter(self.results.values()))[0].problem

    def table(self) -> Table:
        """Mean ± standard deviation over seeds of every objective's metrics, and the upload."""
        return results_table(self.problem, self.results)

    def targets(self, targets: Sequence[Target]) -> Table:
        """Rounds, seconds and upload until all targets are reached."""
        return targets_table(self.problem, targets, self.results)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.results)} on {self.problem}>"

    def _repr_html_(self) -> str:
        return self.table().html()

    def plot(self, path: str | Path | None = None, x: str = "round") -> Figure:
        """Every objective's metrics, a line for each method, a band over seeds.

        Args:
            path: where to save the picture; None not to.
            x: "round", or "upload" for uploaded megabytes.
        """
        return draw(curves_chart(self.problem, self.results), path, x_axis(x))

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
    write_json(folder / "comparison.json", comparison.summary())
    return comparison


def _is_begun(config: RunConfig, path: Path) -> bool:
    """Whether a folder has rounds of this configuration; an error if it has those of another."""
    if not read_history(path / "history.jsonl"):
        return False
    if not saved(path).computes_the_same_as(config):
        raise SettingsError(f"{path} already holds a run with other settings: choose another folder (--out)")
    return True
