"""Appendix E.4: what local training achieves within a round, with FedCMOO and with FSMGDA."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedcmoo.config import preset
from fedcmoo.report.chart import COLOURS, Chart, Line, Panel
from fedcmoo.report.table import Table, mean_and_spread
from fedcmoo.reproduce.measuring import WAYS
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results
from fedcmoo.run import SavedRun

WINDOW = 40
"""Rounds of the running average."""
EVERY = 5
"""Rounds from one measurement to the next, which takes as long as several rounds of training."""
QUANTITIES = {"loss reduction": 1.0, "accuracy gain": 100.0}
"""What is measured, and the factor for its unit."""


class LocalProgressFigure(PaperTarget):
    name: ClassVar[str] = "local-progress"
    title: ClassVar[str] = "Appendix E.4: progress of local training within a round"
    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist")

    def plan(self, study: Study, part: str) -> Plan:
        own, other = (preset(part, method, not study.full)["method"] for method in ("fedcmoo", "fsmgda"))
        settings = {name: value for name, value in own.items() if name != "name"}
        settings |= {"fsmgda_client_lr": other["client_lr"], "measure_every": EVERY}
        return {"FedCMOO": study.configs(part, "local-progress", {"method": settings})}

    def make(self, study: Study, results: Results, note: str) -> Made:
        panels = [
            Panel(f"{PROBLEMS[part]}: {quantity}", unit, [_line(runs["FedCMOO"], way, quantity) for way in WAYS])
            for part, runs in results.items()
            for quantity, unit in (("loss reduction", "nats"), ("accuracy gain", "points"))
        ]
        see = (
            f"Progress of clients on their own data within a round, running average over {WINDOW} rounds: FedCMOO's "
            "(blue) should be above FSMGDA's (orange). The dashed line is FSMGDA with FedCMOO's larger local steps."
        )
        measured = {}
        for part, runs in results.items():
            for quantity, name in (("loss reduction", "loss"), ("accuracy gain", "accuracy")):
                ours, own_rate, same_rate = (_means(runs["FedCMOO"], way, quantity) for way in WAYS)
                for claim, theirs in (("progress", own_rate), ("progress-same-rate", same_rate)):
                    measured[f"{claim}-{name}-{part}"] = [a - b for a, b in zip(ours, theirs, strict=True)]
        chart = Chart("local-progress", "Local progress within a round", see, panels, note)
        return Made([_table(results, note)], [chart], measured)


def _values(run: SavedRun, way: str, quantity: str) -> tuple[list[float], list[float]]:
    """The rounds with a measurement, and the measurements."""
    key = f"{way}: {quantity}"
    pairs = [(float(r.round), r.notes[key] * QUANTITIES[quantity]) for r in run.history if key in r.notes]
    return [at for at, _ in pairs], [value for _, value in pairs]


def _means(runs: Sequence[SavedRun], way: str, quantity: str) -> list[float]:
    return [float(np.mean(_values(run, way, quantity)[1])) for run in runs]


def _line(runs: Sequence[SavedRun], way: str, quantity: str) -> Line:
    at = _values(runs[0], way, quantity)[0]
    values = np.mean([_values(run, way, quantity)[1] for run in runs], axis=0)
    window = max(1, round(WINDOW / (at[1] - at[0]))) if len(at) > 1 else 1
    smooth = [float(values[max(0, n + 1 - window) : n + 1].mean()) for n in range(len(values))]
    dashed = way == WAYS[2]
    return Line(way, {"round": at}, smooth, style="dashed" if dashed else "line", colour=COLOURS[way.split()[0]])


def _table(results: Results, note: str) -> Table:
    rows = []
    for part, runs in results.items():
        for way in WAYS:
            loss, accuracy = (_means(runs["FedCMOO"], way, quantity) for quantity in QUANTITIES)
            rows.append([PROBLEMS[part], way, mean_and_spread(loss, 4), mean_and_spread(accuracy, 2)])
    header = ["experiment", "local training", "loss reduction (nats)", "accuracy gain (points)"]
    title = "Progress of a client on its own data within a round, mean over clients and rounds"
    return Table("local-progress", title, header, rows, (), note)
