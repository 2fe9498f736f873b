"""The cost of reaching target scores: rounds, seconds and bytes until all objectives reach them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fedcmoo.evaluation import Scores
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import Table, mean_and_spread, size
from fedcmoo.run import LabelledRuns, Run
from fedcmoo.settings import SettingsError

PATTERN = re.compile(r"(?P<objective>[^:<>=]+)(:(?P<metric>[^:<>=]+))?(?P<sign><=|>=|=)(?P<value>-?\d*\.?\d+)")


@dataclass(frozen=True)
class Target:
    """A target score of an objective.

    >>> Target.parse("left=0.9").is_reached({"left": {"loss": 0.3, "accuracy": 0.91}})
    True
    >>> Target.parse("left:loss=0.2").is_reached({"left": {"loss": 0.3, "accuracy": 0.91}})
    False

    Attributes:
        objective: its name.
        value: the score.
        metric: "loss" or a metric; None for the objective's first metric, or its loss if it has none.
        sign: ">=" or "<="; "=" means "<=" for losses and ">=" for all other metrics.
    """

    objective: str
    value: float
    metric: str | None = None
    sign: str = "="

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse OBJECTIVE=VALUE or OBJECTIVE:METRIC=VALUE, also with <= or >=."""
        match = PATTERN.fullmatch(text)
        if match is None:
            raise SettingsError(
                f"a target must be OBJECTIVE=VALUE or OBJECTIVE:METRIC=VALUE, such as left=0.9, but got {text!r}"
            )
        return cls(match["objective"], float(match["value"]), match["metric"], match["sign"])

    def __str__(self) -> str:
        return f"{self.objective}{f':{self.metric}' if self.metric else ''}{self.sign}{self.value:g}"

    def check(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise unless the problem's evaluations contain the objective and the metric."""
        known = {name: [metric for other, metric in columns if other == name] for name, _ in columns}
        if self.objective not in known:
            raise SettingsError(f"target {self}: objectives are {', '.join(known)}, but got {self.objective!r}")
        if self.metric is not None and self.metric not in known[self.objective]:
            raise SettingsError(f"target {self}: {self.objective} has {', '.join(known[self.objective])}")

    def is_reached(self, scores: Scores) -> bool:
        """Whether the scores of an evaluation reach the target."""
        own = scores[self.objective]
        metric = self.metric or next((m for m in own if m != "loss"), "loss")
        falls = self.sign == "<=" or (self.sign == "=" and metric == "loss")
        return own[metric] <= self.value if falls else own[metric] >= self.value


def rounds_to(targets: Sequence[Target], run: Run) -> int | None:
    """The first evaluated round in which all targets are reached; None if there is none."""
    reached = (record.round for record, scores in run.evaluated if all(t.is_reached(scores) for t in targets))
    return next(reached, None)


def costs(targets: Sequence[Target], runs: Sequence[Run]) -> dict[str, list[float]]:
    """Rounds, seconds and uploaded bytes until all targets are reached, one number for each run that reaches them."""
    ends = [(run, n) for run in runs if (n := rounds_to(targets, run)) is not None]
    return {
        "rounds": [n for _, n in ends],
        "seconds": [sum(sum(record.seconds.values()) for record in run.history[:n]) for run, n in ends],
        "uploaded": [run.uploaded_by_round[n - 1] for run, n in ends],
    }


def targets_table(title: str, targets: Sequence[Target], runs: LabelledRuns) -> Table:
    """Rounds, seconds and upload until all targets are reached, a column for each label: mean and standard deviation
    over the seeds that reach them."""
    columns = []
    for same in runs.values():
        rounds, seconds, uploads = costs(targets, same).values()
        uploaded = size(sum(uploads) / len(uploads) if uploads else None)
        reached = f"{len(rounds)} of {len(same)}"
        columns.append([mean_and_spread(rounds), mean_and_spread(seconds), uploaded, reached])
    names = ["rounds", "seconds", "uploaded", "seeds that reach it"]
    rows = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    return Table("targets", _title(title, targets), ["", *runs], rows)


def targets_chart(title: str, targets: Sequence[Target], runs: LabelledRuns) -> Chart:
    """A bar chart of these costs: mean, minimum and maximum over the seeds that reach all targets."""
    panels = []
    for cost, unit in (("rounds", 1), ("seconds", 1), ("uploaded", 1e6)):
        lines = []
        for place, (label, same) in enumerate(runs.items()):
            values = [value / unit for value in costs(targets, same)[cost]]
            if values:
                mean = sum(values) / len(values)
                lines.append(Line(label, {"": [place]}, [mean], [min(values)], [max(values)], style="bar"))
        panels.append(Panel(cost, "megabytes" if unit > 1 else cost, lines, ticks=[" "] * len(runs)))
    see = "Lower is better: what it takes until all targets are reached. A method without a bar does not reach them."
    return Chart("targets", _title(title, targets), see, panels)


def _title(title: str, targets: Sequence[Target]) -> str:
    return f"{title}: until {', '.join(map(str, targets))}"
