"""Corollary 1: the average squared norm of the weighted gradient falls as 1/sqrt(T), for any M."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.measuring import NOTE, step_sizes
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results
from fedcmoo.reproduce.valleys import Valleys
from fedcmoo.run import SavedRun, SavedRuns

LOCAL_STEPS = 3
SPACING = 0.1
"""From one measurement to the next, in rounds times the length of a step, 1 / (L sqrt(T))."""
POINTS = 7
"""Values of T."""
OBJECTIVES = (2, 4, 8)
"""Values of M."""
SEEDS = (0, 1, 2, 3, 4)
"""Unless others are asked for: runs are short, and their averages vary."""


class Rate(PaperTarget):
    name: ClassVar[str] = "rate"
    title: ClassVar[str] = "Corollary 1: the rate of convergence"
    parts: ClassVar[tuple[str, ...]] = (Valleys.name,)

    def horizons(self, study: Study) -> list[int]:
        """The values of T: from 100 to 10,000 (at small scale 1,000), or to the number of rounds asked for."""
        last = study.rounds_for(Valleys.name) or (10_000 if study.full else 1_000)
        return sorted({round(T) for T in np.geomspace(min(100, max(1, last // 10)), last, POINTS)})

    def plan(self, study: Study, part: str) -> Plan:
        horizons = self.horizons(study)
        middle = horizons[len(horizons) // 2]
        runs = {f"T {T}": self._configs(study, T, T) for T in horizons}
        runs |= {f"frozen {T}": self._configs(study, T, horizons[0]) for T in horizons}
        return runs | {f"M {M}": self._configs(study, middle, middle, M) for M in OBJECTIVES}

    def _configs(self, study: Study, T: int, T_of_steps: int, M: int = Valleys.objectives) -> list[StudyConfig]:
        """T rounds with the step sizes that the corollary has for `T_of_steps` rounds."""
        settings = {
            "rounds": T,
            "clients_per_round": 2,
            "evaluate_every": T,
            "checkpoint_every": 1000,
            "problem": {"objectives": M},
            "method": {
                **step_sizes(Valleys.L, LOCAL_STEPS, M, T_of_steps),
                "gram": {"name": "unbiased", "budget": M / 2},  # as many bits for each gradient, whatever M is
                "batch_size": 1,
                "measure_every": max(1, round(SPACING * Valleys.L * math.sqrt(T_of_steps))),
            },
        }
        seeds = study.seeds_of.get(Valleys.name) or study.seeds or SEEDS
        own = replace(study, rounds=None, rounds_of={}, seeds=seeds, seeds_of={})
        return own.configs(Valleys.name, "fedcmoo-t-measured", settings)

    def is_full(self, study: Study, part: str, rounds: int | None = None) -> bool:
        return self.horizons(study)[-1] >= self.horizons(Study(full=True))[-1]

    def scale(self, study: Study, parts: Iterable[str]) -> str:
        own, full = self.horizons(study), self.horizons(Study(full=True))
        seeds = len(next(iter(self.plan(study, Valleys.name).values())))
        text = f"T from {own[0]:,} to {own[-1]:,}, {seeds} seed{'s' * (seeds > 1)}"
        return f"full scale: {text}" if own[-1] >= full[-1] else f"small scale (full scale T to {full[-1]:,}): {text}"

    def make(self, study: Study, results: Results, note: str) -> Made:
        runs, horizons = results[Valleys.name], self.horizons(study)
        falling, frozen = ({T: averages(runs[f"{label} {T}"]) for T in horizons} for label in ("T", "frozen"))
        growing = {M: averages(runs[f"M {M}"]) for M in OBJECTIVES}
        measured = {
            "rate-slope": [-s - 0.5 for s in slopes(falling)],
            "rate-control": [b - a for a, b in zip(slopes(falling), slopes(frozen), strict=True)],
            "rate-objectives": [0.5 - s for s in slopes(growing)],
        }
        lines = [_line("FedCMOO-T", falling), _line("steps frozen", frozen), _expected(falling)]
        over_objectives = _line("FedCMOO-T", growing, "objectives M")
        panels = [
            Panel("over the rounds T", "average", lines, x_log=True, y_log=True),
            Panel("over the objectives M", "average", [over_objectives], x_log=True, y_log=True),
        ]
        see = (
            "All axes are logarithmic. With the corollary's step sizes the line should be as steep as the dashed one, "
            "with steps frozen at the smallest T flatter; over M it should not rise."
        )
        chart = Chart("rate", "Average squared norm of the weighted gradient, FedCMOO-T", see, panels, note)
        return Made([_table(runs, falling, frozen, growing, note)], [chart], measured)


def average(run: SavedRun) -> float:
    """1/T Σ_t ||Σ_k w_k^(t) ∇F_k(x^(t))||², over the rounds in which it was measured."""
    return float(np.mean([record.notes[NOTE] for record in run.history if NOTE in record.notes]))


def averages(runs: Sequence[SavedRun]) -> list[float]:
    """One for each seed."""
    return [average(run) for run in runs]


def slopes(values: dict[int, list[float]]) -> list[float]:
    """The slope of the average's logarithm over that of T or M, for each seed."""
    logs = np.log(list(values))
    return [float(np.polyfit(logs, np.log(same), 1)[0]) for same in zip(*values.values(), strict=True)]


def _line(label: str, values: dict[int, list[float]], axis: str = "rounds T") -> Line:
    mean = [float(np.mean(v)) for v in values.values()]
    low, high = ([pick(v) for v in values.values()] for pick in (min, max))
    return Line(label, {axis: [float(at) for at in values]}, mean, low, high, style="marked")


def _expected(values: dict[int, list[float]]) -> Line:
    (first, start), *_ = values.items()
    y = [float(np.mean(start)) * math.sqrt(first / T) for T in values]
    return Line("T^-1/2", {"rounds T": [float(T) for T in values]}, y, style="dashed", colour="#888888")


def _table(
    runs: SavedRuns,
    falling: dict[int, list[float]],
    frozen: dict[int, list[float]],
    growing: dict[int, list[float]],
    note: str,
) -> Table:
    rows = [[f"T = {T:,}", mean_and_spread(falling[T], 5), mean_and_spread(frozen[T], 5)] for T in falling]
    rows.append(["slope over T", mean_and_spread(slopes(falling), 3), mean_and_spread(slopes(frozen), 3)])
    rows += [[f"M = {M}", mean_and_spread(same, 5), ""] for M, same in growing.items()]
    rows.append(["slope over M", mean_and_spread(slopes(growing), 3), ""])
    records: list[CsvRow] = [
        {"runs": label, "seed": run.seed, "average": average(run)} for label, same in runs.items() for run in same
    ]
    header = ["", "corollary's step sizes", "frozen at the smallest T"]
    title = "Average squared norm of the weighted true gradient over T rounds"
    return Table("rate", title, header, rows, records, note)
