"""A report on runs, comparisons, sweeps and Gram benches, made from their folders: `fedcmoo report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcmoo.bench.gram_result import FILE as GRAM
from fedcmoo.bench.gram_result import GramBench, gram_chart
from fedcmoo.pareto.front import FILE as FRONT
from fedcmoo.pareto.front import Front, front_chart
from fedcmoo.report.page import Section, write_page
from fedcmoo.report.run_charts import clients_chart, curves_chart, results_table, run_chart, weights_chart
from fedcmoo.report.runs import by_problem, find_files, find_runs
from fedcmoo.report.table import count
from fedcmoo.run import SavedRun
from fedcmoo.settings import write_toml


def report(folders: Sequence[Path], path: Path) -> None:
    """Write a page about everything in these folders: runs, comparisons, sweeps over preferences, Gram benches.

    Args:
        folders: folders of runs, or folders that contain them.
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
        sections.append(Section(f"front-{n}", f"The front of {front.problem}", tables=[front.table()], charts=[chart]))
    benches = [GramBench.load(file.parent) for file in find_files(folders, GRAM)]
    if benches:
        chart = gram_chart("gram-errors", [[bench] for bench in benches], [bench.problem for bench in benches])
        sections.append(Section("gram", "Gram estimators", charts=[chart]))
    write_page(path, "fedcmoo: runs", f"{count(len(runs), 'run')} in {', '.join(map(str, folders))}", sections)


def _runs_section(problem: str, runs: dict[str, list[SavedRun]]) -> Section:
    """Results, curves and weights of all runs on a problem."""
    several = sum(len(same) for same in runs.values()) > 1
    (first, *_), *_ = runs.values()
    if several:
        charts = [weights_chart(problem, runs)]
        if any(run.scores for same in runs.values() for run in same):
            charts.insert(0, curves_chart(problem, runs))
    else:
        charts = [run_chart(first)]
    clients = clients_chart(problem, runs)
    if clients is not None:
        charts.append(clients)
    details = [(label, write_toml(same[0].config)) for label, same in runs.items()]
    return Section(problem, problem, tables=[results_table("Results at the end", runs)], charts=charts, details=details)
