"""A report on runs, comparisons, sweeps and Gram benches, made from their folders: `fedcmoo report`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedcmoo.bench.gram_result import FILE as GRAM
from fedcmoo.bench.gram_result import GramBench, gram_chart
from fedcmoo.methods import METHODS
from fedcmoo.pareto.front import FILE as FRONT
from fedcmoo.pareto.front import Front, front_chart
from fedcmoo.report.page import Section, write_page
from fedcmoo.report.run_charts import clients_chart, curves_chart, results_table, run_chart, weights_chart
from fedcmoo.report.table import count
from fedcmoo.run import NOT_RESULTS, SavedRun
from fedcmoo.settings import flatten, write_toml

HISTORIES = ("history.jsonl", "history.jsonl.gz")
"""The file of a run's rounds, and that of a published run."""
LONGEST = 48
"""The most characters of a list of differences in a label; beyond that, the folder's name is used."""


def report(folders: Sequence[Path], path: Path) -> None:
    """Write a page about everything in these folders: runs, comparisons, sweeps over preferences, Gram benches."""
    for folder in folders:
        if not any(find_files([folder], name) for name in (*HISTORIES, FRONT, GRAM)):
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


def find_runs(paths: Iterable[Path]) -> list[SavedRun]:
    """The runs in these folders and their subfolders, in order of their names."""
    files = {file.parent: file for name in HISTORIES for file in find_files(paths, name) if file.stat().st_size}
    return [SavedRun.read(folder) for folder in sorted(files)]


def find_files(paths: Iterable[Path], name: str) -> list[Path]:
    """The files with a given name in these folders and their subfolders, each once."""
    found = [file for path in paths for file in sorted(path.rglob(name))]
    return list({file.resolve(): file for file in found}.values())


def by_problem(runs: Sequence[SavedRun]) -> dict[str, dict[str, list[SavedRun]]]:
    """Group runs by problem and label. Runs that differ only in their seed share a label: the method, and the settings
    in which it differs from other runs of the same method."""
    groups: dict[str, list[SavedRun]] = {}
    for run in runs:
        key = {name: value for name, value in run.config.items() if name not in (*NOT_RESULTS, "seed")}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    order = [method.label() for method in METHODS.values()]
    result: dict[str, dict[str, list[SavedRun]]] = {}
    for same in sorted(groups.values(), key=lambda g: order.index(g[0].method) if g[0].method in order else len(order)):
        first = same[0]
        others = [o[0] for o in groups.values() if o[0].problem == first.problem and o[0].method == first.method]
        labels = result.setdefault(first.problem, {})
        difference = _difference(first, others)
        label = f"{first.method} ({difference})" if difference else first.method
        labels[label if label not in labels else f"{label}, {first.folder}"] = same
    return result


def _difference(run: SavedRun, others: Sequence[SavedRun]) -> str:
    """The settings in which a run differs from another run of the same method; empty if it only lacks some."""
    own, flat = flatten(run.config), [flatten(other.config) for other in others]
    names = [
        name
        for name, value in own.items()
        if name.split(".")[0] not in (*NOT_RESULTS, "seed") and any(other.get(name) != value for other in flat)
    ]
    # An object of another class has other settings, so its name is enough.
    renamed = [name.removesuffix("name") for name in names if name.endswith(".name")]
    shown = [n for n in names if n.endswith(".name") or not any(n.startswith(prefix) for prefix in renamed)]
    text = ", ".join(f"{n.removesuffix('.name').split('.')[-1]} {_value(own[n])}" for n in shown)
    return text if len(text) <= LONGEST else run.folder.name


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ":".join(_value(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
