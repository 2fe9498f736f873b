"""Runs as they lie on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedcmoo.config import NOT_RESULTS, read_toml
from fedcmoo.evaluation import Scores, mean_score
from fedcmoo.history import Record, read_history

TITLES = {
    "fsmgda": "FSMGDA",
    "fedcmoo": "FedCMOO",
    "fedcmoo-pref": "FedCMOO-Pref",
    "fedcmoo-t": "FedCMOO-T",
    "fedavg": "FedAvg",
    "mgda": "MGDA",
}
"""Methods by name, as people write them, in the order of the paper's tables."""


@dataclass(frozen=True)
class SavedRun:
    """A run's folder, read.

    Attributes:
        folder: where it lies.
        config: its settings, as far as they are known.
    """

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> SavedRun:
        """The run in a folder. A run within a sweep has its settings from the sweep, and its name from its folder."""
        own, sweep = folder / "config.toml", folder.parent.parent / "sweep.toml"
        if own.exists():
            return cls(folder, read_toml(own))
        name = folder.name.replace("_", ":") if folder.parent.name == "points" else folder.name
        return cls(folder, {**(read_toml(sweep) if sweep.exists() else {}), "method": {"name": name}})

    @cached_property
    def history(self) -> list[Record]:
        """Its rounds."""
        return read_history(self.folder / "history.jsonl")

    @property
    def evaluated(self) -> list[tuple[Record, Scores]]:
        """The rounds with an evaluation, on test data or else validation data."""
        pairs = [(record, record.scores) for record in self.history]
        return [(record, scores) for record, scores in pairs if scores]

    @property
    def final(self) -> Scores:
        """The last scores."""
        return self.evaluated[-1][1]

    def values(self, metric: str) -> list[float]:
        """One of the last scores, for each objective that has it."""
        return [scores[metric] for scores in self.final.values() if metric in scores]

    def mean(self, metric: str) -> float:
        """The mean over objectives of one of the last scores."""
        return mean_score(self.final, metric)

    def curve(self, metric: str) -> list[float]:
        """The mean over objectives at every evaluation."""
        return [mean_score(scores, metric) for _, scores in self.evaluated]

    @cached_property
    def uploaded(self) -> list[float]:
        """Bytes that all clients together have sent after each round."""
        return [float(total) for total in np.cumsum([sum(record.up.values()) for record in self.history])]

    @property
    def seconds(self) -> float:
        """The time of all its rounds."""
        return sum(sum(record.seconds.values()) for record in self.history)

    @property
    def problem(self) -> str:
        """The problem's name, or else the folder's."""
        return str(self.config.get("problem", {}).get("name", self.folder.parent.name))

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.config.get("seed", 0))

    @property
    def method(self) -> str:
        """The method as people write it, or else the folder's name."""
        name = str(self.config.get("method", {}).get("name", self.folder.name))
        return TITLES.get(name, name)


Labelled = Mapping[str, Sequence[SavedRun]]
"""By label, the runs of one or several seeds."""


def find_runs(paths: Iterable[Path]) -> list[SavedRun]:
    """The runs in these folders and the folders within them, in order of their names."""
    return [SavedRun.read(file.parent) for file in find_files(paths, "history.jsonl") if file.stat().st_size]


def find_files(paths: Iterable[Path], name: str) -> list[Path]:
    """The files of a name in these folders and the folders within them, each once."""
    found = [file for path in paths for file in sorted(path.rglob(name))]
    return list({file.resolve(): file for file in found}.values())


def by_problem(runs: Sequence[SavedRun]) -> dict[str, dict[str, list[SavedRun]]]:
    """Runs by problem and label. Runs that differ only in their seed have one label: the method, and the settings in
    which it differs from others of the same method."""
    groups: dict[str, list[SavedRun]] = {}
    for run in runs:
        key = {k: v for k, v in run.config.items() if k not in (*NOT_RESULTS, "seed")} or {"": str(run.folder)}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    result: dict[str, dict[str, list[SavedRun]]] = {}
    order = list(TITLES.values())
    for same in sorted(groups.values(), key=lambda g: order.index(g[0].method) if g[0].method in order else len(order)):
        first = same[0]
        others = [o[0] for o in groups.values() if o[0].problem == first.problem and o[0].method == first.method]
        result.setdefault(first.problem, {})[first.method + _difference(first, others)] = same
    return result


def _difference(run: SavedRun, others: Sequence[SavedRun]) -> str:
    """The settings in which a run differs from some other, or the folder's name where there are no settings."""
    if len(others) == 1:
        return ""
    flat = [flatten(other.config) for other in others]
    own = flatten(run.config)
    names = [n for n, value in own.items() if n not in NOT_RESULTS and any(f.get(n) != value for f in flat)]
    text = ", ".join(f"{name.split('.')[-1]} {own[name]}" for name in names if name != "seed")
    return f" ({text or run.folder.name})"


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table within a table as names with dots.

    >>> flatten({"rounds": 3, "method": {"name": "fedavg"}})
    {'rounds': 3, 'method.name': 'fedavg'}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
