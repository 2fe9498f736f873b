"""A page from any runs: `fedcmoo report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedcmoo.pareto.front import FILE as FRONT
from fedcmoo.pareto.front import Front
from fedcmoo.report.front_chart import front_chart
from fedcmoo.report.gram_chart import FILE as GRAM
from fedcmoo.report.gram_chart import gram_chart, load_bench
from fedcmoo.report.page import Section, write_page
from fedcmoo.report.run_charts import curves_chart, metrics_of, weights_chart
from fedcmoo.report.runs import Labelled, SavedRun, by_problem, find_files, find_runs
from fedcmoo.report.table import Table, mean_and_spread
from fedcmoo.result import size
from fedcmoo.settings import write_toml


def report(folders: Sequence[Path], path: Path) -> None:
    """Write one page about all that is in these folders: runs, comparisons, sweeps over preferences, Gram benches.

    Args:
        folders: of runs, or folders that hold them.
        path: the page.
    """
    for folder in folders:
        if not any(find_files([folder], name) for name in ("history.jsonl", FRONT, GRAM)):
            raise ValueError(f"{folder} must be the folder of a run, or of several, but holds no history.jsonl")
    runs = find_runs(folders)
    sections = [_runs_section(problem, labelled) for problem, labelled in by_problem(runs).items()]
    for n, file in enumerate(find_files(folders, FRONT), start=1):
        front = Front.load(file.parent)
        chart = front_chart(f"front-{n}", "Losses reached for each preference", [front])
        sections.append(Section(f"front-{n}", f"The front of {front.problem}", charts=[chart]))
    benches = [load_bench(file.parent) for file in find_files(folders, GRAM)]
    if benches:
        chart = gram_chart("gram-errors", [[bench] for bench in benches], [bench.problem for bench in benches])
        sections.append(Section("gram", "Gram estimators", charts=[chart]))
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    write_page(path, "fedcmoo: runs", f"{count} in {', '.join(map(str, folders))}", sections)


def _runs_section(problem: str, runs: Labelled) -> Section:
    """Results, curves and weights of all runs on a problem."""
    charts = [curves_chart(problem, runs)] if metrics_of(runs) else []
    charts.append(weights_chart(problem, runs))
    return Section(problem, problem, tables=[results_table(problem, runs)], charts=charts, details=_details(runs))


def results_table(problem: str, runs: Labelled) -> Table:
    """The last scores of every label, mean and spread over seeds, and the upload."""
    metrics = metrics_of(runs)
    header = ["method", "seeds", "rounds", *(f"mean {metric}" for metric in metrics), "uploaded"]
    rows = []
    for label, same in runs.items():
        cells = [
            mean_and_spread([run.mean(metric) for run in same if run.evaluated], 4) if same[0].evaluated else "–"
            for metric in metrics
        ]
        uploaded = size(sum(run.uploaded[-1] for run in same) / len(same))
        rows.append([label, str(len(same)), str(len(same[0].history)), *cells, uploaded])
    return Table(f"results-{problem}", "Results at the end", header, rows)


def _details(runs: Labelled) -> list[tuple[str, str]]:
    """Configurations, one for each label."""
    return [(label, _configuration(same[0])) for label, same in runs.items() if same[0].config]


def _configuration(run: SavedRun) -> str:
    return write_toml(json.loads(json.dumps(run.config)))
