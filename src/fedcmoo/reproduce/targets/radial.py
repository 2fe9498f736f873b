"""Appendix E.2: radial plots of the final losses on CelebA and CelebA-5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import Plan, Results, Target
from fedcmoo.reproduce.targets.table1 import METHODS
from fedcmoo.run import Labelled, SavedRun


class Radial(Target):
    name: ClassVar[str] = "radial"
    title: ClassVar[str] = "Appendix E.2: final losses of all objectives of CelebA"
    parts: ClassVar[tuple[str, ...]] = ("celeba", "celeba5")

    def plan(self, study: Study, part: str) -> Plan:
        return study.methods(part, METHODS)

    def make(self, study: Study, results: Results, note: str) -> Made:
        see = "The smaller a ring, the better: FSMGDA's (orange) should be the largest, most of all with 40 objectives."
        panels = [radial_panel(PROBLEMS[part], runs) for part, runs in results.items()]
        excess = {part: _excess(runs) for part, runs in results.items()}
        measured = {}
        if "celeba" in excess:
            measured["radial-celeba"] = excess["celeba"]
        if len({len(values) for values in excess.values()}) == 1 and len(excess) == 2:  # both, with the same seeds
            measured["radial-objectives"] = np.subtract(excess["celeba"], excess["celeba5"]).tolist()
        return Made(charts=[Chart("radial", "Final test losses", see, panels, note)], measured=measured)


def radial_panel(title: str, runs: Labelled) -> Panel:
    """The final losses of every method, an objective a spoke, means over seeds."""
    lines = [Line(label, {}, _losses(same)) for label, same in runs.items()]
    return Panel(title, "test loss", lines, spokes=list(next(iter(runs.values()))[0].scores))


def _losses(runs: Sequence[SavedRun]) -> list[float]:
    return [float(x) for x in np.mean([run.values("loss") for run in runs], axis=0)]


def _excess(runs: Labelled) -> list[float]:
    """FSMGDA's mean loss above FedCMOO's, in percent, seed by seed."""
    pairs = zip(runs["FSMGDA"], runs["FedCMOO"], strict=True)
    return [100 * (a.mean("loss") / b.mean("loss") - 1) for a, b in pairs]
