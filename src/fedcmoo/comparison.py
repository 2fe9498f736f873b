"""Comparison of several methods and seeds on one problem: a table with mean and spread, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcmoo.config import RunConfig
from fedcmoo.failures import DivergedError
from fedcmoo.files import file_name, write_json
from fedcmoo.methods import METHODS, Method
from fedcmoo.problem import Problem
from fedcmoo.report.run_charts import curves_chart, results_table, x_axis
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table
from fedcmoo.report.targets import Target, costs, targets_chart, targets_table
from fedcmoo.result import Result
from fedcmoo.run import LabelledRuns, SavedRun
from fedcmoo.run_folder import holds_run
from fedcmoo.runs import Runs
from fedcmoo.settings import object_of
from fedcmoo.training import fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of a comparison.

    Attributes:
        results: by label (usually a method), one result for each seed whose run did not diverge.
        diverged: by label and seed, the error of each run that diverged.
    """

    results: LabelledRuns
    diverged: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """The problem's name."""
        return next(iter(self.results.values()))[0].problem

    def table(self) -> Table:
        """Mean ± standard deviation over seeds of every objective's metrics, and the upload."""
        return results_table(self.problem, self.results)

    def targets(self, targets: Sequence[Target]) -> Table:
        """Rounds, seconds and bytes until all targets are reached."""
        diverged = {label: len(seeds) for label, seeds in self.diverged.items()}
        return targets_table(self.problem, targets, self.results, diverged)

    def plot_targets(self, targets: Sequence[Target], path: str | Path | None = None) -> Figure:
        """Plot the table of `targets` as bars, with the smallest and largest values over seeds."""
        return draw(targets_chart(self.problem, targets, self.results), path)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.results)} on {self.problem}>"

    def _repr_html_(self) -> str:
        return self.table().html()

    def plot(self, path: str | Path | None = None, x: str = "round") -> Figure:
        """Plot every objective's metrics, with a line for each method and a band over seeds.

        Args:
            path: where to save the figure; None not to save it.
            x: "round", or "upload" for uploaded megabytes.
        """
        return draw(curves_chart(self.problem, self.results), path, x_axis(x))

    def save(self, folder: Path, targets: Sequence[Target] = ()) -> None:
        """Write comparison.png and comparison.json, and with targets their costs into it and targets.png."""
        self.plot(folder / "comparison.png")
        write_json(folder / "comparison.json", self.summary(targets))
        if targets:
            self.plot_targets(targets, folder / "targets.png")

    def summary(self, targets: Sequence[Target] = ()) -> list[dict[str, object]]:
        """The results as plain data, for JSON; with the costs of reaching all targets, if there are any."""
        return [
            {"label": label, **r.summary(), **({"to_targets": costs(targets, r)} if targets else {})}
            for label, results in self.results.items()
            for r in results
        ]


def compare(
    problem: Problem | Callable[[int], Problem],
    methods: Sequence[Method | str] | Mapping[str, Method | str],
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int = 100,
    *,
    folder: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Train with several methods and seeds on one problem.

    Args:
        problem: model, objectives and data; or a function that creates the problem from a seed, so that seeds also
            differ in the initial model.
        methods: objects or names, such as `["fedcmoo", FSMGDA(client_lr=0.1)]`; or by label, where two would have the
            same one: `{"K = 5": FedCMOO(local_steps=5), "K = 20": FedCMOO(local_steps=20)}`.
        seeds: the seeds; one run for each.
        rounds: T, the number of rounds of each run.
        folder: the output folder, with a folder for each run; repeating the call continues an interrupted comparison.
            None to write nothing.
        options: further arguments of `fit`.

    Returns:
        All results, with a table of mean and spread and a figure.
    """
    labelled = dict(methods) if isinstance(methods, Mapping) else _by_label(methods)
    if not labelled or not seeds:
        raise ValueError(f"compare needs at least one method and one seed, but got {methods!r} and {seeds!r}")
    results: dict[str, list[Result]] = {label: [] for label in labelled}
    for label, method in labelled.items():
        for seed in seeds:
            place = None if folder is None else Path(folder) / f"{file_name(label)}-seed{seed}"
            built = problem if isinstance(problem, Problem) else problem(seed)
            begun = place is not None and holds_run(place)
            results[label].append(fit(built, method, rounds, seed=seed, folder=place, resume=begun, **options))
    comparison = Comparison(results)
    if folder is not None:
        comparison.save(Path(folder))
    return comparison


def _by_label(methods: Sequence[Method | str]) -> dict[str, Method | str]:
    objects = [object_of(method, METHODS, "method") for method in methods]
    labels = [method.label() for method in objects]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"methods must be given by label where two are {label}: {{'first': …, 'second': …}}")
    return dict(zip(labels, objects, strict=True))


def by_name(configs: Mapping[str, Sequence[RunConfig]]) -> dict[str, RunConfig]:
    """The runs of `compare_configs` by the names that their progress is shown with."""
    return {_run_name(name, config): config for name, seeds in configs.items() for config in seeds}


def _run_name(name: str, config: RunConfig) -> str:
    return f"{name}-seed{config.seed}"


def compare_configs(configs: Mapping[str, Sequence[RunConfig]], runs: Runs) -> Comparison:
    """Run every configuration that the store does not hold yet. Runs that diverge are left out of the results.

    Args:
        configs: by the name of a method or another label, one configuration for each seed.
        runs: the store of runs.

    Raises:
        DivergedError: if all runs diverge.
    """
    results: dict[str, list[SavedRun]] = {}
    diverged: dict[str, dict[int, str]] = {}
    for name, config in ((name, config) for name, seeds in configs.items() for config in seeds):
        label = METHODS[name].label() if name in METHODS else name
        try:
            run = runs.get(config, _run_name(name, config))
        except DivergedError as error:
            diverged.setdefault(label, {})[config.seed] = str(error)
        else:
            results.setdefault(label, []).append(run)
    if not results:
        errors = [f"{label}, seed {seed}: {why}" for label, seeds in diverged.items() for seed, why in seeds.items()]
        raise DivergedError("; ".join(errors))
    return Comparison(results, diverged)
