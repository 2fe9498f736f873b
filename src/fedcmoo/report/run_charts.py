"""Tables and charts for any set of runs: last scores, learning curves, weights, distributions over clients."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedcmoo.client_scores import QUANTILES, ClientScores
from fedcmoo.evaluation import Scores, mean_score, metric_names
from fedcmoo.report.chart import Chart, Line, Panel, Style, thinned
from fedcmoo.report.table import Table, mean_and_spread, size
from fedcmoo.run import LabelledRuns, Run

UPLOADED = "uploaded megabytes, all clients"
SPENT = "privacy spent"
SHARE = "share of clients, %"

FEW = 12
"""Up to this many evaluations, each one is marked on its line."""

MOST_OBJECTIVES = 12
"""The largest number of objectives, or of their metrics over clients, shown; further ones are left out."""

X_AXES = {"round": "round", "upload": UPLOADED}


def x_axis(name: str) -> str:
    """The x-axis of a chart of runs, by the name that `plot` takes."""
    if name not in X_AXES:
        raise ValueError(f"x must be 'round' or 'upload', but got {name!r}")
    return X_AXES[name]


def results_table(title: str, runs: LabelledRuns) -> Table:
    """The last scores of every objective, a column for each label: mean and standard deviation over seeds."""
    rows = []
    for name, metric in _columns(runs):
        cells = [
            [run.scores[name][metric] for run in same if metric in run.scores.get(name, {})] for same in runs.values()
        ]
        rows.append([f"{name} {metric}", *(mean_and_spread(values, 4) for values in cells)])
    for metric in _averaged(runs):
        cells = [[run.mean(metric) for run in same if run.scores] for same in runs.values()]
        rows.append([f"mean {metric}", *(mean_and_spread(values, 4) for values in cells)])
    rows += client_rows(runs)
    uploads = [size(sum(run.uploaded for run in same) / len(same)) for same in runs.values()]
    lengths = [str(len(same[0].history)) for same in runs.values()]
    rows += [["uploaded", *uploads], ["rounds", *lengths], ["seeds", *(str(len(same)) for same in runs.values())]]
    starved = [dict.fromkeys(name for run in same for name in run.starved) for same in runs.values()]
    if any(starved):
        rows.append(["starved by the weighting rule", *(", ".join(names) or "–" for names in starved)])
    return Table("results", title, ["", *runs], rows)


def run_chart(run: Run) -> Chart:
    """A chart of one run: a panel for each metric with a line for each objective, then the objectives' weights."""
    splits = ("test", "validation")
    split = next((name for name in splits if any(getattr(r, name) for r in run.history)), "mean client")
    at = [record.round for record, _ in run.evaluated]
    x = _positions(run, at)
    panels = []
    for metric in metric_names(run.scores):
        names = [name for name, values in run.scores.items() if metric in values]
        curves = {name: [value_of(name, metric)(scores) for _, scores in run.evaluated] for name in names}
        lines = [Line(name, x, thinned(curve), style=_style(at)) for name, curve in curves.items()]
        panels.append(Panel(f"{split} {metric}", metric, lines))
    rounds = [record.round for record in run.history]
    x = _positions(run, rounds)
    lines = [Line(n, x, thinned([record.weights[n] for record in run.history])) for n in run.weights]
    panels.append(Panel("weights", "weight", lines))
    if run.epsilon is not None:
        panels.append(Panel(SPENT, "epsilon", [Line("epsilon", x, thinned(run.epsilons))]))
    see = "How each objective fares, and how much it counts in a round: the weights."
    return Chart(f"curves-{run.problem}", f"{run.method} on {run.problem}", see, panels)


def curves_chart(problem: str, runs: LabelledRuns) -> Chart:
    """A chart with panels for the means of metrics that several objectives share, then for each objective's metrics."""
    panels = [Panel(f"mean {metric}", metric, curve_lines(runs, mean_of(metric))) for metric in _averaged(runs)]
    columns = _columns(runs)
    shown = list(dict.fromkeys(name for name, _ in columns))[:MOST_OBJECTIVES]
    panels += [
        Panel(f"{name}: {metric}", metric, curve_lines(runs, value_of(name, metric)))
        for name, metric in columns
        if name in shown
    ]
    private = {label: same[0] for label, same in runs.items() if same[0].epsilon is not None}
    if private:
        spent = [
            Line(label, _positions(run, [record.round for record in run.history]), thinned(run.epsilons))
            for label, run in private.items()
        ]
        panels.append(Panel(SPENT, "epsilon", spent))
    see = "Each line is a method, the band its spread over seeds: higher accuracy and lower loss, sooner, are better."
    see += _left_out(len({name for name, _ in columns}))
    return Chart(f"curves-{problem}", f"{problem}: learning curves", see, panels)


def curve_lines(runs: LabelledRuns, value: Callable[[Scores], float]) -> list[Line]:
    """A line for each label over rounds and over uploaded megabytes; the band spans the seeds."""
    lines = []
    for label, same in runs.items():
        n = min(len(run.evaluated) for run in same)
        if n == 0:
            continue
        at = [record.round for record, _ in same[0].evaluated[:n]]
        values = np.array([[value(scores) for _, scores in run.evaluated[:n]] for run in same])
        uploaded = np.mean([[run.uploaded_by_round[r - 1] / 1e6 for r in at] for run in same], axis=0)
        several = len(same) > 1
        lines.append(
            Line(
                label,
                {"round": thinned(at), UPLOADED: thinned(uploaded.tolist())},
                thinned(values.mean(axis=0).tolist()),
                thinned(values.min(axis=0).tolist()) if several else (),
                thinned(values.max(axis=0).tolist()) if several else (),
                style=_style(at),
            )
        )
    return lines


def weights_chart(problem: str, runs: LabelledRuns, note: str = "") -> Chart:
    """A chart of the objectives' weights over the rounds, a panel for each label; the mean over seeds."""
    panels = []
    for label, same in runs.items():
        n = min(len(run.history) for run in same)
        rounds = [record.round for record in same[0].history[:n]]
        lines = []
        for name in list(same[0].weights)[:MOST_OBJECTIVES]:
            mean = np.mean([[record.weights[name] for record in run.history[:n]] for run in same], axis=0)
            lines.append(Line(name, {"round": thinned(rounds)}, thinned(mean.tolist())))
        panels.append(Panel(label, "weight", lines))
    see = "The objectives' weights in each round. Equal weights average the losses; a weight of 1 trains one objective."
    see += _left_out(max(len(same[0].weights) for same in runs.values()))
    return Chart(f"weights-{problem}", f"{problem}: the objectives' weights over time", see, panels, note)


def mean_of(metric: str) -> Callable[[Scores], float]:
    """A metric's mean over objectives."""
    return lambda scores: mean_score(scores, metric)


def value_of(objective: str, metric: str) -> Callable[[Scores], float]:
    """One objective's metric."""
    return lambda scores: scores[objective].get(metric, math.nan)


def _columns(runs: LabelledRuns) -> list[tuple[str, str]]:
    """Every objective's metrics and loss."""
    scores = next((run.scores for same in runs.values() for run in same if run.scores), {})
    return [(name, metric) for metric in metric_names(scores) for name, values in scores.items() if metric in values]


def _averaged(runs: LabelledRuns) -> list[str]:
    """The metrics that several objectives have. Losses are excluded: they may be of different kinds, so their mean is
    meaningless."""
    metrics = [metric for _, metric in _columns(runs) if metric != "loss"]
    return [metric for metric in dict.fromkeys(metrics) if metrics.count(metric) > 1]


def _positions(run: Run, rounds: Sequence[int]) -> dict[str, list[float]]:
    uploaded = run.uploaded_by_round
    return {"round": thinned(rounds), UPLOADED: thinned([uploaded[r - 1] / 1e6 for r in rounds])}


def _style(at: Sequence[int]) -> Style:
    return "marked" if len(at) <= FEW else "line"


def _left_out(M: int) -> str:
    return f" The first {MOST_OBJECTIVES} of {M} objectives are shown." if M > MOST_OBJECTIVES else ""


def client_rows(runs: LabelledRuns) -> list[list[str]]:
    """Each metric's mean over the worst tenth of the clients and its standard deviation over clients."""
    rows = []
    for name, metric in _client_columns(runs):
        for statistic, words in (("worst_tenth", "worst tenth of clients"), ("spread", "spread over clients")):
            cells = [
                [found[name][metric][statistic] for found in _client_scores(same) if metric in found[name]]
                for same in runs.values()
            ]
            rows.append([f"{name} {metric}, {words}", *(mean_and_spread(values, 4) for values in cells)])
    return rows


def clients_chart(problem: str, runs: LabelledRuns) -> Chart | None:
    """A chart of the quantiles over clients: a panel for each objective's metrics, a line for each label (the mean over
    seeds). None if no run evaluated its clients."""
    panels = []
    for name, metric in _client_columns(runs)[:MOST_OBJECTIVES]:
        lines = []
        for label, same in runs.items():
            found = [scores[name][metric] for scores in _client_scores(same) if metric in scores[name]]
            if found:
                quantiles = np.mean([[values[f"q{p}"] for p in QUANTILES] for values in found], axis=0)
                lines.append(Line(label, {SHARE: list(QUANTILES)}, quantiles.tolist(), style="marked"))
        panels.append(Panel(f"{name}: {metric}", metric, lines))
    see = (
        "For each share of the clients, the value that they do not exceed: a flat line serves all clients alike, and "
        "its ends are the clients with the smallest and the largest values."
    )
    return Chart(f"clients-{problem}", f"{problem}: distribution over clients", see, panels) if panels else None


def _client_columns(runs: LabelledRuns) -> list[tuple[str, str]]:
    """Every objective's metrics, losses last."""
    scores: ClientScores = next((found for same in runs.values() for found in _client_scores(same)), {})
    every = [(name, metric) for name, metrics in scores.items() for metric in metrics]
    return sorted(every, key=lambda column: column[1] == "loss")


def _client_scores(runs: Sequence[Run]) -> list[ClientScores]:
    """The last evaluation at the clients of each run that has one."""
    found = [[record.client_test for record in run.history if record.client_test] for run in runs]
    return [scores[-1] for scores in found if scores]
