"""Compare weighting rules with FedAvg on a suite of problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from fedcmoo.config import RunConfig, preset
from fedcmoo.failures import DivergedError
from fedcmoo.report.static import save
from fedcmoo.report.table import Table
from fedcmoo.runs import Runs
from fedcmoo.settings import merge
from fedcmoo.types import Matrix
from fedcmoo.weights.scalarization import SCALARIZATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEDAVG = "fedavg"

SUITE = (
    *("mixed-digits", "couples", "loans", "digit-groups"),
    *("two-digits", "two-digits-x4", "two-digits-quarter", "two-digits-l2"),
)
"""Problems whose objectives differ in kind or scale or conflict, and one without either. No downloads."""

SHOWN = 50.0
"""The change, in percent, at which the figure's colours saturate."""


@dataclass(frozen=True)
class WeightsBench:
    """The losses of rules and of FedAvg on several problems.

    Attributes:
        objectives: by problem, the objectives' names.
        losses: by problem and rule, the final losses [seeds, M], infinite where the run diverged; FedAvg is one of the
            rules.
        alone: by problem, the loss of each objective when it is trained alone.
    """

    objectives: Mapping[str, Sequence[str]]
    losses: Mapping[str, Mapping[str, Matrix]]
    alone: Mapping[str, Matrix]

    @property
    def rules(self) -> list[str]:
        """The rules' names, the best mean rank first."""
        names = list(next(iter(self.losses.values())))
        return sorted(names, key=self.mean_rank)

    def change(self, problem: str, rule: str) -> Matrix:
        """100 (F_k / F_k of FedAvg - 1): how much larger each loss is than with FedAvg, in percent, [seeds, M]."""
        change: Matrix = 100 * (self.losses[problem][rule] / self.losses[problem][FEDAVG] - 1)
        return change

    def worst_against_alone(self, problem: str, rule: str) -> Matrix:
        """max_k F_k / F_k of training objective k alone, [seeds]: the ratio of the objective that loses most."""
        worst: Matrix = (self.losses[problem][rule] / self.alone[problem]).max(axis=1)
        return worst

    def mean_rank(self, rule: str) -> float:
        """The rule's rank among all rules by loss, mean over problems, seeds and objectives; 1 is the best."""
        ranks = []
        for found in self.losses.values():
            place = list(found).index(rule)
            ranks.append(rankdata(np.stack(list(found.values())), axis=0)[place].mean())
        return float(np.mean(ranks))

    def overview(self) -> Table:
        """A table with a line for each rule, the best mean rank first."""
        problems = list(self.losses)
        header = ["rule", "mean rank", *(f"Δ {p}" for p in problems), "largest loss", "better worst objective"]
        rows = []
        for rule in self.rules:
            changes = {problem: self.change(problem, rule) for problem in problems}
            better = [self.worst_against_alone(p, rule) < self.worst_against_alone(p, FEDAVG) for p in problems]
            rows.append(
                [
                    rule,
                    f"{self.mean_rank(rule):.1f}",
                    *(_percent(change.mean()) for change in changes.values()),
                    _percent(max(change.mean(axis=0).max() for change in changes.values())),
                    f"{np.sum(better)} of {np.size(better)}",
                ]
            )
        note = (
            "Test losses, mean over seeds. Δ: change against FedAvg in percent, mean over objectives (delta_M with "
            "FedAvg as the reference; negative is better). Largest loss: the change of the objective that fares worst "
            "against FedAvg, of all problems. Better worst objective: runs in which the objective that is worst "
            "against being trained alone is better than FedAvg's."
        )
        return Table("weights", "Weighting rules against FedAvg", header, rows, self.records(), note)

    def records(self) -> list[dict[str, str | float]]:
        """A table of each objective's mean loss with each rule, its change against FedAvg, and its loss alone."""
        return [
            {
                "problem": problem,
                "rule": rule,
                "objective": name,
                "loss": float(self.losses[problem][rule][:, k].mean()),
                "change": float(self.change(problem, rule)[:, k].mean()),
                "alone": float(self.alone[problem][:, k].mean()),
            }
            for problem, names in self.objectives.items()
            for rule in self.rules
            for k, name in enumerate(names)
        ]

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot the change against FedAvg of every objective (columns) with every rule (rows); green is better."""
        from matplotlib.figure import Figure

        rules = [rule for rule in self.rules if rule != FEDAVG]
        columns = [(problem, name) for problem, names in self.objectives.items() for name in names]
        values = np.array([np.concatenate([self.change(p, rule).mean(axis=0) for p in self.losses]) for rule in rules])
        figure = Figure(figsize=(2 + 0.5 * len(columns), 2 + 0.3 * len(rules)), layout="constrained")
        ax = figure.subplots()
        image = ax.imshow(np.clip(values, -SHOWN, SHOWN), cmap="RdYlGn_r", vmin=-SHOWN, vmax=SHOWN, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.7 * SHOWN else "black"
            ax.text(j, i, _percent(value, 0), ha="center", va="center", fontsize=7, color=colour)
        ax.set_xticks(range(len(columns)), [f"{p}: {name}" for p, name in columns], rotation=60, ha="right", fontsize=8)
        ax.set_yticks(range(len(rules)), rules, fontsize=8)
        figure.colorbar(image, label="test loss against FedAvg, %", extend="both")
        if path is not None:
            save(figure, Path(path))
        return figure

    def summary(self) -> dict[str, Any]:
        """The comparison as plain data, for JSON; infinite losses become None."""
        return {
            "objectives": {problem: list(names) for problem, names in self.objectives.items()},
            "losses": {p: {rule: _plain(found) for rule, found in rules.items()} for p, rules in self.losses.items()},
            "alone": {problem: _plain(found) for problem, found in self.alone.items()},
        }


def _plain(losses: Matrix) -> list[list[float | None]]:
    return [[value if np.isfinite(value) else None for value in row] for row in losses.tolist()]


def _percent(change: float, digits: int = 1) -> str:
    return f"{change:+z.{digits}f}" if np.isfinite(change) else "diverged"


@dataclass(frozen=True)
class Suite:
    """Runs with several weighting rules, with FedAvg, and on each objective alone.

    Rules for Gram matrices run as weights of FedCMOO, those for losses as weights of Scalarized. Each method has the
    settings of the problem's preset at the small scale. A run that diverges counts as having infinite losses.

    Args:
        runs: the store of runs.
        seeds: the seeds of the runs.
        over: settings of every run, such as the number of rounds.
    """

    runs: Runs
    seeds: Sequence[int] = (0, 1, 2)
    over: Mapping[str, Any] = field(default_factory=dict)

    def bench(self, rules: Sequence[str], problems: Sequence[str]) -> WeightsBench:
        """The final test losses of all rules on all problems, by name."""
        objectives, results, alone = {}, {}, {}
        for problem in problems:
            built = self.config(problem, "fedavg", {}, self.seeds[0]).build()
            names = objectives[problem] = [objective.name for objective in built.objectives]
            results[problem] = {FEDAVG: self.losses(problem, FEDAVG, "fedavg", {}, names)}
            for rule in rules:
                method = "scalarized" if rule in SCALARIZATIONS else "fedcmoo"
                results[problem][rule] = self.losses(problem, rule, method, {"weights": rule}, names)
            alone[problem] = np.empty_like(results[problem][FEDAVG])
            for k, name in enumerate(names):
                weights = np.eye(len(names))[k].tolist()
                found = self.losses(problem, f"{name} alone", "fedavg", {"weights": weights}, names)
                alone[problem][:, k] = found[:, k]
        return WeightsBench(objectives, results, alone)

    def config(self, problem: str, method: str, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """The configuration of one run."""
        table = merge(preset(problem, method, small=True), {"method": settings, "seed": seed, **self.over})
        return RunConfig.from_table(table)

    def losses(
        self, problem: str, label: str, method: str, settings: Mapping[str, Any], names: Sequence[str]
    ) -> Matrix:
        """The final losses of one method's runs, [seeds, M]."""
        rows = []
        for seed in self.seeds:
            try:
                config = self.config(problem, method, settings, seed)
                scores = self.runs.get(config, f"{problem} {label} seed {seed}").scores
                rows.append([scores[name]["loss"] for name in names])
            except DivergedError:
                rows.append([np.inf] * len(names))
        return np.array(rows)
