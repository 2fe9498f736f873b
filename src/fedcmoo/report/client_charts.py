"""The distribution of the last scores over clients: quantiles as a figure, the worst clients as table rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcmoo.client_scores import QUANTILES, ClientScores
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import mean_and_spread
from fedcmoo.run import LabelledRuns, Run

SHARE = "share of clients, %"

MOST_PANELS = 12


def client_rows(runs: LabelledRuns) -> list[list[str]]:
    """Each metric's mean over the worst tenth of the clients and its standard deviation over clients."""
    rows = []
    for name, metric in _columns(runs):
        for statistic, words in (("worst_tenth", "worst tenth of clients"), ("spread", "spread over clients")):
            cells = [
                [found[name][metric][statistic] for found in _scores(same) if metric in found[name]]
                for same in runs.values()
            ]
            texts = [mean_and_spread(values, 4) if values else "–" for values in cells]
            rows.append([f"{name} {metric}, {words}", *texts])
    return rows


def clients_chart(problem: str, runs: LabelledRuns, note: str = "") -> Chart | None:
    """A chart of the quantiles over clients: a panel for each objective's metrics, a line for each label (the mean over
    seeds). None if no run evaluated its clients."""
    panels = []
    for name, metric in _columns(runs)[:MOST_PANELS]:
        lines = []
        for label, same in runs.items():
            found = [scores[name][metric] for scores in _scores(same) if metric in scores[name]]
            if found:
                quantiles = np.mean([[values[f"q{p}"] for p in QUANTILES] for values in found], axis=0)
                lines.append(Line(label, {SHARE: list(QUANTILES)}, quantiles.tolist(), style="marked"))
        panels.append(Panel(f"{name}: {metric}", metric, lines))
    see = (
        "For each share of the clients, the value that they do not exceed: a flat line serves all clients alike, and "
        "its ends are the clients with the smallest and the largest values."
    )
    return Chart(f"clients-{problem}", f"{problem}: distribution over clients", see, panels, note) if panels else None


def _columns(runs: LabelledRuns) -> list[tuple[str, str]]:
    """Every objective's metrics, losses last."""
    scores: ClientScores = next((found for same in runs.values() for found in _scores(same)), {})
    every = [(name, metric) for name, metrics in scores.items() for metric in metrics]
    return sorted(every, key=lambda column: column[1] == "loss")


def _scores(runs: Sequence[Run]) -> list[ClientScores]:
    """The last evaluation at the clients of each run that has one."""
    found = [[record.client_test for record in run.history if record.client_test] for run in runs]
    return [scores[-1] for scores in found if scores]
