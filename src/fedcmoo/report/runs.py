"""Runs in folders, and the labels under which tables and figures show them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedcmoo.methods import METHODS
from fedcmoo.run import NOT_RESULTS, SavedRun
from fedcmoo.settings import flatten

LONGEST = 48
"""The most characters of a list of differences in a label; beyond that, the folder's name is used."""


def find_runs(paths: Iterable[Path]) -> list[SavedRun]:
    """The runs in these folders and their subfolders, in order of their names."""
    return [SavedRun.read(file.parent) for file in find_files(paths, "history.jsonl") if file.stat().st_size]


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
