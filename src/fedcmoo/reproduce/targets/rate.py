"""Corollary 1: the average squared norm of the weighted gradient falls as 1/sqrt(T)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.rate import NOTE, step_sizes
from fedcmoo.reproduce.runs import Labelled
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import Plan, Results, Target
from fedcmoo.reproduce.valleys import Valleys
from fedcmoo.run import SavedRun

LOCAL_STEPS = 3
SPACING = 0.1
"""From one measurement to the next, in rounds times the length of a step, 1 / (L sqrt(T)): so runs of all T are
measured at the same places of the way that they have in common, and what lies between is missed alike."""
POINTS = 7
"""Values of T."""


class Rate(Target):
    name: ClassVar[str] = "rate"
    title: ClassVar[str] = "Corollary 1: the rate of convergence"
    parts: ClassVar[tuple[str, ...]] = ("valleys",)

    def horizons(self, study: Study) -> list[int]:
        """The values of T: from 100 to 10,000 (at small scale 1,000), or to the number of rounds asked for."""
        last = study.rounds_for(Valleys.name) or (10_000 if study.full else 1_000)
        return sorted({round(T) for T in np.geomspace(min(100, max(1, last // 10)), last, POINTS)})

    def plan(self, study: Study, part: str) -> Plan:
        problem = Valleys()
        configs = {}
        for T in self.horizons(study):
            settings: dict[str, Any] = {
                "rounds": T,
                "clients_per_round": 2,
                "evaluate_every": max(1, T // 10),
                "checkpoint_every": 1000,
                "method": {
                    **step_sizes(problem.L, LOCAL_STEPS, problem.objectives, T),
                    "batch_size": 4,
                    "measure_every": max(1, round(SPACING * problem.L * math.sqrt(T))),
                },
            }
            configs[str(T)] = replace(study, rounds=None, rounds_of={}).configs(
                problem.name, "fedcmoo-t-measured", settings
            )
        return configs

    def scale(self, study: Study, parts: Iterable[str]) -> str:
        own, full = self.horizons(study), self.horizons(Study(full=True))
        n = len(study.seeds_for(Valleys.name))
        seeds = f"{n} seed{'s' * (n > 1)}"
        if own[-1] < full[-1]:
            return f"small scale: T up to {own[-1]:,} (full scale {full[-1]:,}), {seeds}"
        return f"full scale: T from {own[0]:,} to {own[-1]:,}, {seeds}"

    def make(self, study: Study, results: Results, note: str) -> Made:
        runs = results["valleys"]
        horizons = [float(T) for T in runs]
        seeds = [[average(run) for run in same] for same in runs.values()]
        mean = [float(np.mean(values)) for values in seeds]
        expected = [mean[0] * math.sqrt(horizons[0] / T) for T in horizons]
        lines = [
            Line("FedCMOO-T", {"rounds T": horizons}, mean, [min(v) for v in seeds], [max(v) for v in seeds], "marked"),
            Line("T^-1/2", {"rounds T": horizons}, expected, style="dashed", colour="#888888"),
        ]
        see = "Both axes are logarithmic: for large T the measured line should be at least as steep as the dashed one."
        panel = Panel("average squared norm of the weighted gradient", "average", lines, x_log=True, y_log=True)
        chart = Chart("rate", "FedCMOO-T with the corollary's step sizes", see, [panel], note)
        slopes = slope(runs)
        return Made([_table(runs, slopes, note)], [chart], {"rate-slope": [-s - 0.5 for s in slopes]})


def average(run: SavedRun) -> float:
    """1/T Σ_t ||Σ_k w_k^(t) ∇F_k(x^(t))||², over the rounds in which it was measured."""
    return float(np.mean([record.notes[NOTE] for record in run.history if NOTE in record.notes]))


def slope(runs: Labelled) -> list[float]:
    """The slope of the average's logarithm over that of T, for each seed."""
    logs = np.log([float(T) for T in runs])
    values = np.log([[average(run) for run in same] for same in runs.values()])
    return [float(np.polyfit(logs, values[:, seed], 1)[0]) for seed in range(values.shape[1])]


def _table(runs: Labelled, slopes: list[float], note: str) -> Table:
    rows = [[f"{int(T):,}", mean_and_spread([average(run) for run in same], 5)] for T, same in runs.items()]
    rows.append(["slope", mean_and_spread(slopes, 3)])
    records = [{"T": int(T), "seed": run.seed, "average": average(run)} for T, same in runs.items() for run in same]
    header = ["T", "average squared norm"]
    return Table(
        "rate", "Average squared norm of the weighted true gradient over T rounds", header, rows, records, note
    )
