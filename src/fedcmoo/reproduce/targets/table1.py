"""Table 1: final test accuracies of the two-objective experiments."""

from __future__ import annotations

from typing import ClassVar

from fedcmoo.report.table import CsvRow, Table
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import BOLD, HARD, PROBLEMS, TABLE1
from fedcmoo.reproduce.runs import Labelled
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import (
    Plan,
    Results,
    Target,
    accuracy_records,
    differences,
    mean_percent,
    pair_cell,
    pair_text,
    percent,
    same_seeds,
)

METHODS = ("fsmgda", "fedcmoo", "fedcmoo-pref", "fedavg")


class Table1(Target):
    name: ClassVar[str] = "table1"
    title: ClassVar[str] = "Table 1: final test accuracy with two objectives"
    parts: ClassVar[tuple[str, ...]] = tuple(TABLE1)
    needs_all_labels: ClassVar[bool] = False

    def plan(self, study: Study, part: str) -> Plan:
        return study.methods(part, METHODS)

    def make(self, study: Study, results: Results, note: str) -> Made:
        header = ["method"]
        for part in results:
            header += [PROBLEMS[part], "paper"]
        rows: list[list[str]] = []
        records: list[CsvRow] = []
        for label in ("FSMGDA", "FedCMOO", "FedCMOO-Pref", "FedAvg"):
            row = [label]
            for part, labelled in results.items():
                paper = TABLE1[part].get(label)
                runs = labelled.get(label, ())
                row += [pair_cell(runs), pair_text(paper)]
                records += accuracy_records(part, label, runs, paper)
            rows.append(row)
        title = "Final test accuracy (%) of the first / second objective"
        measured: dict[str, list[float]] = {}
        for part, labelled in results.items():
            measured |= _measure(part, labelled)
        return Made([Table("table1", title, header, rows, records, note)], measured=measured)


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
