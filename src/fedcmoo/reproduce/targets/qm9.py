"""Figure 3 and appendix E.5: the loss on QM9 against rounds and against uploaded data, and a radial plot."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.run_charts import curve_lines, mean_of, weights_chart
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results
from fedcmoo.reproduce.targets.curves import loss_lead, radial_panel
from fedcmoo.reproduce.targets.tables import MULTI_OBJECTIVE
from fedcmoo.run import SavedRun, SavedRuns

MODELS = "uploaded data / (model size × clients per round)"


class QM9Figure(PaperTarget):
    name: ClassVar[str] = "qm9"
    title: ClassVar[str] = "Figure 3 and appendix E.5: eleven properties of molecules"
    parts: ClassVar[tuple[str, ...]] = ("qm9",)

    def plan(self, study: Study, part: str) -> Plan:
        # FedCMOO's whole upload at small scale is that of a few rounds of FSMGDA: without their losses, no comparison.
        return study.methods(part, MULTI_OBJECTIVE, {} if study.full else {"evaluate_every": 1})

    def make(self, study: Study, results: Results, note: str) -> Made:
        runs = results["qm9"]
        lines = [_in_models(line, runs) for line in curve_lines(runs, mean_of("loss"))]
        panels = [
            Panel(
                f"over {name}", "mean test loss", [replace(line, x={axis: line.x[axis]}) for line in lines], y_log=True
            )
            for name, axis in (("rounds", "round"), ("uploaded data", MODELS))
        ]
        see = (
            "FedCMOO (blue) should fall faster than FSMGDA (orange) over the rounds, and far faster over the data "
            "uploaded, since FSMGDA uploads eleven models where FedCMOO uploads two."
        )
        charts = [
            Chart("qm9-curves", "Mean test loss of eleven tasks", see, panels, note),
            Chart(
                "qm9-radial",
                "Final test loss of each task",
                "The smaller a ring, the better: FedCMOO's (blue) should lie inside FSMGDA's (orange) on every task.",
                [radial_panel("QM9", runs)],
                note,
            ),
            weights_chart("qm9", runs, note),
        ]
        return Made([_table(runs, note)], charts, _measure(runs))


def model_bytes(runs: SavedRuns) -> float:
    """The bytes of one model: what a client of FSMGDA uploads for each objective."""
    record = runs["FSMGDA"][0].history[0]
    return sum(record.up.values()) / len(record.cohort) / len(record.weights)


def _in_models(line: Line, runs: SavedRuns) -> Line:
    """With the upload of a client in models, as the paper's figure has it."""
    run = runs[line.label][0]
    scale = model_bytes(runs) * len(run.history[0].cohort) / 1e6
    (megabytes,) = (positions for axis, positions in line.x.items() if axis != "round")
    return replace(line, x={"round": line.x["round"], MODELS: [m / scale for m in megabytes]})


def _at_upload(run: SavedRun, uploaded: float) -> float | None:
    """The mean loss at a total upload, between evaluations on a straight line; None before and after all of them."""
    at = [run.uploaded_by_round[record.round - 1] for record, _ in run.evaluated]
    return float(np.interp(uploaded, at, run.curve("loss"))) if at[0] <= uploaded <= at[-1] else None


def _measure(runs: SavedRuns) -> dict[str, Sequence[float]]:
    fsmgda, fedcmoo, pref = (runs[label] for label in ("FSMGDA", "FedCMOO", "FedCMOO-Pref"))

    def same_upload(ours: Sequence[SavedRun]) -> list[float]:
        pairs = [(_at_upload(b, a.uploaded), a.mean("loss")) for a, b in zip(ours, fsmgda, strict=True)]
        return [100 * (1 - own / other) for other, own in pairs if other is not None]

    uploads = [run.uploaded / sum(len(r.cohort) for r in run.history) / model_bytes(runs) for run in fedcmoo]
    return {
        "qm9-rounds": loss_lead(fedcmoo, fsmgda),
        "qm9-upload": same_upload(fedcmoo),
        "qm9-upload-pref": same_upload(pref),
        "qm9-every-task": [
            100 * min(1 - x / y for x, y in zip(a.values("loss"), b.values("loss"), strict=True))
            for a, b in zip(fedcmoo, fsmgda, strict=True)
        ],
        "qm9-communication": [2 - upload for upload in uploads],
    }


def _table(runs: SavedRuns, note: str) -> Table:
    names = list(runs["FedCMOO"][0].scores)
    rows: list[list[str]] = []
    records: list[CsvRow] = []
    for label, same in runs.items():
        cells = [mean_and_spread([run.scores[name]["loss"] for run in same], 3) for name in names]
        total = float(np.mean([run.uploaded for run in same])) / 1e6
        rows.append([label, mean_and_spread([run.mean("loss") for run in same], 3), *cells, f"{total:.0f}"])
        records += [
            {"method": label, "seed": run.seed, "task": name, "loss": run.scores[name]["loss"]}
            for run in same
            for name in names
        ]
    header = ["method", "mean", *names, "uploaded MB"]
    return Table("qm9", "Final test loss on QM9 (standardised mean squared error)", header, rows, records, note)
