"""A page from any runs: `fedcmoo report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedcmoo.pareto.front import FILE as FRONT
from fedcmoo.pareto.front import Front
from fedcmoo.report.front_chart import front_chart
from fedcmoo.report.page import Section, write_page
from fedcmoo.report.run_charts import curves_chart, metrics_of, weights_chart
from fedcmoo.report.runs import Labelled, SavedRun, by_problem, find_runs
from fedcmoo.report.table import Table, mean_and_spread
from fedcmoo.result import size
from fedcmoo.settings import write_toml


def report(folders: Sequence[Path], path: Path) -> None:
    """Write one page about all that is in these folders: runs, comparisons, sweeps over preferences, Gram benches.

    Args:
        folders: of runs, or folders that hold them.
        path: the page.
    """
    runs = find_runs(folders)
    fronts = sorted({file.parent for folder in folders for file in folder.rglob(FRONT)})
    sections = []
    for problem, labelled in by_problem(runs).items():
        charts = [curves_chart(problem, labelled)] if metrics_of(labelled) else []
        charts.append(weights_chart(problem, labelled))
        sections.append(
            Section(
                problem, problem, tables=[results_table(problem, labelled)], charts=charts, details=_details(labelled)
            )
        )
    for folder in fronts:
        front = Front.load(folder)
        chart = front_chart(f"front-{folder.name}", f"{front.problem}: losses reached for each preference", [front])
        sections.append(Section(f"front-{folder.name}", f"front of {front.problem}", charts=[chart]))
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    write_page(path, "fedcmoo: " + ", ".join(by_problem(runs)), f"{count} in {', '.join(map(str, folders))}", sections)


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
