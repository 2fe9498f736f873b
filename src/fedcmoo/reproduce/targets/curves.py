"""Figure 1 and appendix E.1: mean test accuracy and loss over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Panel
from fedcmoo.report.run_charts import curve_lines, mean_of, weights_chart
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS, TABLE1
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import Plan, Results, Target, differences, mean_percent, same_seeds
from fedcmoo.reproduce.targets.table1 import METHODS
from fedcmoo.run import SavedRun

EXPERIMENTS = (*TABLE1, "celeba", "celeba5")


class Curves(Target):
    name: ClassVar[str] = "curves"
    title: ClassVar[str] = "Figure 1 and appendix E.1: learning curves"
    parts: ClassVar[tuple[str, ...]] = EXPERIMENTS
    needs_all_labels: ClassVar[bool] = False

    def plan(self, study: Study, part: str) -> Plan:
        return study.methods(part, METHODS)

    def make(self, study: Study, results: Results, note: str) -> Made:
        charts = [_chart(metric, results, note) for metric in ("accuracy", "loss")]
        charts += [
            weights_chart(part, {k: v for k, v in runs.items() if k != "FedAvg"}, note)
            for part, runs in results.items()
        ]
        measured = {}
        for part, runs in results.items():
            fedcmoo, fsmgda, pref = (runs.get(label, ()) for label in ("FedCMOO", "FSMGDA", "FedCMOO-Pref"))
            measured[f"speed-{part}"] = lead(fedcmoo, fsmgda)
            measured[f"pref-slower-{part}"] = lead(fedcmoo, pref)
            measured[f"final-loss-{part}"] = loss_lead(fedcmoo, fsmgda)
            if part not in TABLE1:  # whose accuracies are the table's claims
                measured[f"final-accuracy-{part}"] = differences(fedcmoo, fsmgda, mean_percent)
        return Made(charts=charts, measured=measured)


def lead(first: Sequence[SavedRun], second: Sequence[SavedRun]) -> list[float]:
    """Mean test accuracy in percent of the first runs minus that of the second, averaged over the evaluations."""
    return [
        100 * float(np.mean(np.subtract(a.curve("accuracy"), b.curve("accuracy"))))
        for a, b in same_seeds(first, second)
    ]


def loss_lead(first: Sequence[SavedRun], second: Sequence[SavedRun]) -> list[float]:
    """By how many percent the final mean loss of the first runs is below that of the second."""
    return [100 * (1 - a.mean("loss") / b.mean("loss")) for a, b in same_seeds(first, second)]


def _chart(metric: str, results: Results, note: str) -> Chart:
    panels = [
        Panel(PROBLEMS[part], f"mean test {metric}", curve_lines(runs, mean_of(metric)))
        for part, runs in results.items()
    ]
    see = {
        "accuracy": "FedCMOO (blue) should rise faster than FSMGDA (orange) and end above it.",
        "loss": "FedCMOO (blue) should fall faster than FSMGDA (orange) and end below it.",
    }[metric]
    return Chart(f"curves-{metric}", f"Mean test {metric} of all objectives", see, panels, note)
