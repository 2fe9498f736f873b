"""The base class of targets, each of which is one table or figure of the paper, and what several of them share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study, StudyConfig, falls_short, scale_line
from fedcmoo.run import SavedRun, SavedRuns
from fedcmoo.runs import NotMeasuredError, Runs

Plan = Mapping[str, Sequence[StudyConfig]]
"""By label (a method, mostly), one configuration for each seed."""

Results = Mapping[str, SavedRuns]
"""Runs by part (a problem, mostly) and label, of the parts that could be made."""


class PaperTarget(ABC):
    """A table or figure: which runs it needs, and what it makes of them.

    A part that cannot be made, for example because its data are missing, does not affect the others.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    needs_all_labels: ClassVar[bool] = True
    """Whether `make` needs the runs of all labels, with the same seeds; else it takes those that exist."""

    @abstractmethod
    def plan(self, study: Study, part: str) -> Plan:
        """The runs that a part needs."""

    @abstractmethod
    def make(self, study: Study, results: Results, note: str) -> Made:
        """Tables, charts and measurements from the parts that are there; `note` says at what scale."""

    def is_full(self, study: Study, part: str, rounds: int | None = None) -> bool:
        """Whether the runs of a part have the paper's scale, or with `rounds`, that scale with at least so many rounds;
        the number of seeds does not count."""
        own, full = (self.plan(s, part) for s in (study, Study(full=True)))
        return all(label in own and not falls_short(own[label][0], full[label][0], rounds) for label in full)

    def scale(self, study: Study, parts: Iterable[str]) -> str:
        """The line about the scale of some parts, for every table and figure."""
        own, full = ({part: self.plan(s, part) for part in parts} for s in (study, Study(full=True)))
        first = {part: next(label for label in labels if label in full[part]) for part, labels in own.items()}
        missing = list(dict.fromkeys(label for part in own for label in full[part] if label not in own[part]))
        of_own, of_full = ({part: plan[part][label] for part, label in first.items()} for plan in (own, full))
        return scale_line(of_own, of_full, missing, all(self.is_full(study, part) for part in own))

    def results(self, study: Study, part: str, runs: Runs) -> SavedRuns:
        """The runs of a part. Whatever is not there yet is made, unless `runs` are to be finished ones only."""
        plan = self.plan(study, part)
        if not runs.only_finished:
            return {label: [runs.get(config) for config in seeds] for label, seeds in plan.items()}
        found = {label: [run for config in seeds if (run := runs.find(config))] for label, seeds in plan.items()}
        if self.needs_all_labels:
            whole = set.intersection(*({run.seed for run in same} for same in found.values()))
            found = {label: [run for run in same if run.seed in whole] for label, same in found.items()}
        if not any(found.values()):
            raise NotMeasuredError("its runs are not finished")
        return {label: same for label, same in found.items() if same}

    def not_measured(self, study: Study, results: Results) -> str:
        """Which runs of the parts that are there are missing, for the line about the scale; empty if none."""
        missing = []
        for part, found in results.items():
            labels: dict[str, list[str]] = {}  # by missing seeds
            plan = self.plan(study, part)
            for label, configs in plan.items():
                there = {run.seed for run in found.get(label, ())}
                seeds = [str(config.seed) for config in configs if config.seed not in there]
                if seeds:
                    labels.setdefault(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}", []).append(label)
            for seeds_text, same in labels.items():
                names = [] if len(same) == len(plan) else [", ".join(same)]
                missing.append(" ".join([part, *names, seeds_text]))
        return f"; not measured yet: {'; '.join(missing)}" if missing else ""


TableEntry = tuple[str, str, Sequence[CsvRow]]
"""Our number, the paper's, and the rows of the CSV file behind ours."""


def beside_paper(
    name: str,
    title: str,
    what: str,
    labels: Iterable[str],
    parts: Collection[str],
    entry: Callable[[str, str], TableEntry],
    note: str,
) -> Table:
    """A table with a row for each label, and for each part a column with our numbers and one with the paper's."""
    header = [what, *(column for part in parts for column in (PROBLEMS[part], "paper"))]
    entries = {label: [entry(part, label) for part in parts] for label in labels}
    rows = [[label, *(cell for found in same for cell in found[:2])] for label, same in entries.items()]
    records = [record for same in entries.values() for found in same for record in found[2]]
    return Table(name, title, header, rows, records, note)


def of_parts(results: Results, measure: Callable[[str, SavedRuns], dict[str, list[float]]]) -> dict[str, list[float]]:
    """The measurements of all parts together."""
    return {name: values for part, runs in results.items() for name, values in measure(part, runs).items()}


def percent(run: SavedRun) -> list[float]:
    """The final test accuracies in percent."""
    return [100 * value for value in run.values("accuracy")]


def mean_percent(run: SavedRun) -> float:
    """The mean of the final test accuracies in percent."""
    return 100 * run.mean("accuracy")


def differences(
    first: Sequence[SavedRun], second: Sequence[SavedRun], value: Callable[[SavedRun], float]
) -> list[float]:
    """A number of the first runs minus that of the second, for every seed that both have."""
    return [value(a) - value(b) for a, b in same_seeds(first, second)]


def same_seeds(*labels: Sequence[SavedRun]) -> list[tuple[SavedRun, ...]]:
    """The runs of several labels side by side, for every seed that all of them have."""
    first, *others = ({run.seed: run for run in same} for same in labels)
    return [(run, *(other[seed] for other in others)) for seed, run in first.items() if all(seed in o for o in others)]


def accuracies(part: str, label: str, runs: Sequence[SavedRun], paper: Sequence[float] | None) -> TableEntry:
    """The final accuracies of two objectives as an entry of a table."""
    return pair_cell(runs), pair_text(paper), accuracy_records(part, label, runs, paper)


def pair_cell(runs: Sequence[SavedRun]) -> str:
    """The final accuracies of two objectives, mean and spread over seeds."""
    if not runs:
        return "not measured"
    return " / ".join(mean_and_spread([percent(run)[k] for run in runs]) for k in range(2))


def pair_text(pair: Sequence[float] | None) -> str:
    """The paper's accuracies of two objectives."""
    return "" if pair is None else " / ".join(f"{value:.1f}" for value in pair)


def accuracy_records(part: str, label: str, runs: Sequence[SavedRun], paper: Sequence[float] | None) -> list[CsvRow]:
    """Rows of a CSV: one for each objective and seed."""
    return [
        {
            "experiment": part,
            "method": label,
            "objective": name,
            "seed": run.seed,
            "accuracy": 100 * scores["accuracy"],
            "loss": scores["loss"],
            "paper_accuracy": None if paper is None else paper[k],
        }
        for run in runs
        for k, (name, scores) in enumerate(run.scores.items())
    ]
