"""Figure 2: accuracy against the number of local steps."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results, differences, mean_percent
from fedcmoo.run import SavedRun, SavedRuns

SMALL, FULL = (2, 10, 20), (2, 5, 10, 20, 40)
"""Local steps; 10 is what all other runs have."""
LABELS = ("FedCMOO", "FSMGDA")


class DriftFigure(PaperTarget):
    name: ClassVar[str] = "drift"
    title: ClassVar[str] = "Figure 2: drift with the number of local steps"
    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist")

    def plan(self, study: Study, part: str) -> Plan:
        configs: dict[str, list[StudyConfig]] = {}
        for K in FULL if study.full else SMALL:
            same_steps = study.methods(part, ("fedcmoo", "fsmgda"), {"method": {"local_steps": K}})
            configs |= {f"{label} {K}": seeds for label, seeds in same_steps.items()}
        return configs

    def make(self, study: Study, results: Results, note: str) -> Made:
        steps = FULL if study.full else SMALL
        panels = [
            Panel(PROBLEMS[part], "mean test accuracy (%)", [_line(runs, label, steps) for label in LABELS])
            for part, runs in results.items()
        ]
        see = "With more local steps FSMGDA (orange) should fall further behind FedCMOO (blue)."
        chart = Chart("drift", "Mean test accuracy after the same rounds", see, panels, note)
        measured = {}
        for part, runs in results.items():
            first, last = (
                differences(runs[f"FedCMOO {K}"], runs[f"FSMGDA {K}"], mean_percent) for K in (steps[0], steps[-1])
            )
            measured[f"drift-grows-{part}"] = [b - a for a, b in zip(first, last, strict=True)]
            measured[f"drift-lead-{part}"] = last
        return Made([_table(results, steps, note)], [chart], measured)


def _accuracies(runs: Sequence[SavedRun]) -> list[float]:
    return [mean_percent(run) for run in runs]


def _line(runs: SavedRuns, label: str, steps: Sequence[int]) -> Line:
    values = [_accuracies(runs[f"{label} {K}"]) for K in steps]
    several = len(values[0]) > 1
    return Line(
        label,
        {"local steps": [float(K) for K in steps]},
        [float(np.mean(v)) for v in values],
        [min(v) for v in values] if several else (),
        [max(v) for v in values] if several else (),
        style="marked",
    )


def _table(results: Results, steps: Sequence[int], note: str) -> Table:
    rows: list[list[str]] = []
    records: list[CsvRow] = []
    for part, runs in results.items():
        for label in LABELS:
            cells = [mean_and_spread(_accuracies(runs[f"{label} {K}"])) for K in steps]
            rows.append([PROBLEMS[part], label, *cells])
            records += [
                {"experiment": part, "method": label, "local_steps": K, "seed": run.seed, "accuracy": mean_percent(run)}
                for K in steps
                for run in runs[f"{label} {K}"]
            ]
    header = ["experiment", "method", *(f"{K} steps" for K in steps)]
    return Table("drift", "Mean test accuracy (%) against local steps", header, rows, records, note)
