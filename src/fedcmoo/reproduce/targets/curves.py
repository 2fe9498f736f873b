"""Figure 1 and appendix E.1: accuracy and loss over the rounds; appendix E.2: radial plots of the final losses."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.run_charts import curve_lines, mean_of, weights_chart
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS, TABLE1
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results, differences, mean_percent, same_seeds
from fedcmoo.reproduce.targets.tables import METHODS
from fedcmoo.run import SavedRun, SavedRuns


class Curves(PaperTarget):
    name: ClassVar[str] = "curves"
    title: ClassVar[str] = "Figure 1 and appendix E.1: learning curves"
    parts: ClassVar[tuple[str, ...]] = (*TABLE1, "celeba", "celeba5")
    needs_all_labels: ClassVar[bool] = False

    def plan(self, study: Study, part: str) -> Plan:
        return study.methods(part, METHODS)

    def make(self, study: Study, results: Results, note: str) -> Made:
        charts = [_chart(metric, results, note) for metric in ("accuracy", "loss")]
        charts += [weights_chart(p, moving, note) for p, runs in results.items() if (moving := with_weights(runs))]
        measured = {}
        for part, runs in results.items():
            fedcmoo, fsmgda, pref = (runs.get(label, ()) for label in ("FedCMOO", "FSMGDA", "FedCMOO-Pref"))
            measured[f"speed-{part}"] = lead(fedcmoo, fsmgda)
            measured[f"pref-slower-{part}"] = lead(fedcmoo, pref)
            measured[f"final-loss-{part}"] = loss_lead(fedcmoo, fsmgda)
            if part not in TABLE1:  # whose accuracies are the table's claims
                measured[f"final-accuracy-{part}"] = differences(fedcmoo, fsmgda, mean_percent)
        return Made(charts=charts, measured=measured)


def with_weights(runs: SavedRuns) -> SavedRuns:
    """The runs of methods that change the weights."""
    return {label: same for label, same in runs.items() if any(r.weights != same[0].weights for r in same[0].history)}


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


class Radial(PaperTarget):
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


def radial_panel(title: str, runs: SavedRuns) -> Panel:
    """The final losses of every method, an objective a spoke, means over seeds."""
    lines = [
        Line(label, {}, np.mean([run.values("loss") for run in same], axis=0).tolist()) for label, same in runs.items()
    ]
    return Panel(title, "test loss", lines, spokes=list(next(iter(runs.values()))[0].scores))


def _excess(runs: SavedRuns) -> list[float]:
    """FSMGDA's mean loss above FedCMOO's, in percent, seed by seed."""
    pairs = zip(runs["FSMGDA"], runs["FedCMOO"], strict=True)
    return [100 * (a.mean("loss") / b.mean("loss") - 1) for a, b in pairs]
