"""Appendix E.4: what local training achieves within a round, with FedCMOO and with FSMGDA."""

import math
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
                for claim, way in (("progress", WAYS[1]), ("progress-same-rate", WAYS[2])):
                    measured[f"{claim}-{name}-{part}"] = [_lead(run, way, quantity) for run in runs["FedCMOO"]]
        chart = Chart("local-progress", "Local progress within a round", see, panels, note)
        return Made([_table(results, note)], [chart], measured)


def _values(run: SavedRun, way: str, quantity: str) -> dict[int, float]:
    """The measurements by round; those in which a client's training diverged are missing."""
    key = f"{way}: {quantity}"
    return {r.round: r.notes[key] * QUANTITIES[quantity] for r in run.history if key in r.notes}


def _lead(run: SavedRun, way: str, quantity: str) -> float:
    """FedCMOO's progress minus that of another way, averaged over the rounds that have both; NaN without any."""
    ours, theirs = (_values(run, w, quantity) for w in (WAYS[0], way))
    return _mean([ours[t] - theirs[t] for t in theirs if t in ours])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _means(runs: Sequence[SavedRun], way: str, quantity: str) -> list[float]:
    return [_mean(list(_values(run, way, quantity).values())) for run in runs]


def _line(runs: Sequence[SavedRun], way: str, quantity: str) -> Line:
    every = [_values(run, way, quantity) for run in runs]
    at = [t for t in every[0] if all(t in values for values in every)]
    mean = {t: float(np.mean([values[t] for values in every])) for t in at}
    smooth = [float(np.mean([value for s, value in mean.items() if t - WINDOW < s <= t])) for t in at]
    places, colour = {"round": [float(t) for t in at]}, COLOURS[way.split()[0]]
    return Line(way, places, smooth, style="dashed" if way == WAYS[2] else "line", colour=colour)


def _table(results: Results, note: str) -> Table:
    rows = []
    for part, runs in results.items():
        for way in WAYS:
            loss, accuracy = (_means(runs["FedCMOO"], way, quantity) for quantity in QUANTITIES)
            every = [{w: _values(run, w, "loss reduction") for w in WAYS} for run in runs["FedCMOO"]]
            total = sum(len(set().union(*by_way.values())) for by_way in every)
            diverged = total - sum(len(by_way[way]) for by_way in every)
            row = [PROBLEMS[part], way, mean_and_spread(loss, 4), mean_and_spread(accuracy, 2)]
            rows.append([*row, f"{diverged} of {total} rounds"])
    header = ["experiment", "local training", "loss reduction (nats)", "accuracy gain (points)", "diverged"]
    title = "Progress of a client on its own data within a round, mean over clients and rounds without divergence"
    return Table("local-progress", title, header, rows, (), note)
