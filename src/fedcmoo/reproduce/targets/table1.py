"""Table 1: final test accuracies of the two-objective experiments."""

from __future__ import annotations

from typing import ClassVar

from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import BOLD, HARD, TABLE1
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import (
    Entry,
    Plan,
    Results,
    Target,
    accuracies,
    beside_paper,
    differences,
    mean_percent,
    of_parts,
    percent,
    same_seeds,
)
from fedcmoo.run import Labelled

METHODS = ("fsmgda", "fedcmoo", "fedcmoo-pref", "fedavg")
LABELS = ("FSMGDA", "FedCMOO", "FedCMOO-Pref", "FedAvg")


class Table1(Target):
    name: ClassVar[str] = "table1"
    title: ClassVar[str] = "Table 1: final test accuracy with two objectives"
    parts: ClassVar[tuple[str, ...]] = tuple(TABLE1)
    needs_all_labels: ClassVar[bool] = False

    def plan(self, study: Study, part: str) -> Plan:
        return study.methods(part, METHODS)

    def make(self, study: Study, results: Results, note: str) -> Made:
        def entry(part: str, label: str) -> Entry:
            return accuracies(part, label, results[part].get(label, ()), TABLE1[part].get(label))

        title = "Final test accuracy (%) of the first / second objective"
        table = beside_paper("table1", title, "method", LABELS, results, entry, note)
        return Made([table], measured=of_parts(results, _measure))


def _measure(part: str, runs: Labelled) -> dict[str, list[float]]:
    fedcmoo, fsmgda, pref = (runs.get(label, ()) for label in ("FedCMOO", "FSMGDA", "FedCMOO-Pref"))
    paper = TABLE1[part]["FedCMOO"]
    measured = {
        f"mean-accuracy-{part}": differences(fedcmoo, fsmgda, mean_percent),
        f"best-{part}": [
            min(percent(c)[k] - max(percent(f)[k], percent(p)[k]) for k in BOLD[part])
            for c, f, p in same_seeds(fedcmoo, fsmgda, pref)
        ],
        f"pref-uniform-{part}": differences(fsmgda, pref, lambda run: max(percent(run)) - min(percent(run))),
        f"level-{part}": [min(a - b for a, b in zip(percent(run), paper, strict=True)) + 2 for run in fedcmoo],
    }
    if part in HARD:
        k = HARD[part]
        measured[f"pref-hard-objective-{part}"] = [
            percent(p)[k] - max(percent(c)[k], percent(f)[k]) for p, c, f in same_seeds(pref, fedcmoo, fsmgda)
        ]
    return measured
