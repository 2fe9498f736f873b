"""Compare weighting rules with FedAvg on a suite of problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcmoo.bench.weights_result import FEDAVG, Losses, WeightsBench
from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig, preset, saved
from fedcmoo.failures import DivergedError
from fedcmoo.files import write_atomically
from fedcmoo.history import read_history
from fedcmoo.settings import SettingsError, merge
from fedcmoo.weights.scalarization import SCALARIZATIONS

SUITE = (
    *("mixed-digits", "couples", "loans", "digit-groups"),
    *("two-digits", "two-digits-x4", "two-digits-quarter", "two-digits-l2"),
)
"""Problems whose objectives differ in kind or scale or conflict, and one without either. No downloads."""

FINISHED = "result.json"
"""The file that a run writes last."""


@dataclass(frozen=True)
class Suite:
    """Runs with several weighting rules, with FedAvg, and on each objective alone.

    Rules for Gram matrices run as weights of FedCMOO, those for losses as weights of Scalarized. Each method has the
    settings of the problem's preset at the small scale. Each run has its own folder: a second call reads finished runs
    and continues the others. A run that diverges counts as having infinite losses.

    Args:
        folder: the folder of the runs.
        seeds: the seeds of the runs.
        over: settings of every run, such as the number of rounds.
        callbacks: a function that returns a run's callbacks, given its name.
    """

    folder: Path
    seeds: Sequence[int] = (0, 1, 2)
    over: Mapping[str, Any] = field(default_factory=dict)
    callbacks: Callable[[str], Sequence[Callback]] = lambda name: ()

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
                found = self.losses(problem, f"{name}-alone", "fedavg", {"weights": weights}, names)
                alone[problem][:, k] = found[:, k]
        return WeightsBench(objectives, results, alone)

    def config(self, problem: str, method: str, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """The configuration of one run."""
        table = merge(preset(problem, method, small=True), {"method": settings, "seed": seed, **self.over})
        return RunConfig.from_table(table)

    def losses(
        self, problem: str, label: str, method: str, settings: Mapping[str, Any], names: Sequence[str]
    ) -> Losses:
        """The final losses of one method's runs, [seeds, M]."""
        rows = []
        for seed in self.seeds:
            folder = self.folder / f"{problem}-{label}-seed{seed}"
            self._run(self.config(problem, method, settings, seed), folder, names)
            scores = json.loads((folder / FINISHED).read_text())["scores"]
            rows.append([scores[name]["loss"] for name in names])
        return np.array(rows)

    def _run(self, config: RunConfig, folder: Path, names: Sequence[str]) -> None:
        """Start or continue a run, unless it is finished."""
        begun = bool(read_history(folder / "history.jsonl"))
        if begun and not saved(folder).computes_the_same_as(config):
            raise SettingsError(f"{folder} already holds a run with other settings: choose another folder (--out)")
        if (folder / FINISHED).exists():
            return
        try:
            config.run(folder, self.callbacks(folder.name), resume=begun)
        except DivergedError:
            scores = {name: {"loss": np.inf} for name in names}
            write_atomically(folder / FINISHED, json.dumps({"scores": scores}).encode())
