"""The cost of reaching target scores: rounds, seconds and bytes until all objectives reach them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from fedcmoo.evaluation import Scores
from fedcmoo.history import EVALUATE
from fedcmoo.objective import Objective
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import Table, mean_and_spread, sizes
from fedcmoo.run import LabelledRuns, Run
from fedcmoo.settings import SettingsError

COSTS = {"rounds": False, "seconds": False, "uploaded": True, "downloaded": True}
"""The costs of reaching targets, and whether they are bytes."""

PATTERN = re.compile(r"(?P<objective>[^:<>=]+)(:(?P<metric>[^:<>=]+))?(?P<sign><=|>=|=)(?P<value>[^:<>=]+)")


@dataclass(frozen=True)
class Target:
    """A target score of an objective.

    Attributes:
        objective: its name.
        metric: "loss" or a metric.
        sign: ">=" or "<=".
        value: the score.
    """

    objective: str
    metric: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str, objectives: Sequence[Objective]) -> Self:
        """Parse OBJECTIVE=VALUE or OBJECTIVE:METRIC=VALUE, also with <= or >=.

        Without METRIC it is the objective's first metric, or its loss if it has none. "=" means "<=" for losses and
        other scores that should be small, and ">=" for all others.

        >>> import torch
        >>> from fedcmoo import Objective, accuracy
        >>> left = Objective("left", torch.nn.functional.cross_entropy, metrics=[accuracy])
        >>> print(Target.parse("left=0.9", [left]), Target.parse("left:loss=0.2", [left]))
        left:accuracy>=0.9 left:loss<=0.2
        """
        match = PATTERN.fullmatch(text)
        value = _number(match["value"]) if match else None
        if match is None or value is None:
            raise SettingsError(
                f"a target must be OBJECTIVE=VALUE or OBJECTIVE:METRIC=VALUE, such as left=0.9, but got {text!r}"
            )
        known = {objective.name: objective for objective in objectives}
        name = match["objective"]
        if name not in known:
            raise SettingsError(f"target {text}: objectives are {', '.join(known)}, but got {name!r}")
        rises = {metric.name: metric.higher_is_better for metric in known[name].metrics} | {"loss": False}
        metric = match["metric"] or next(iter(rises))
        if metric not in rises:
            raise SettingsError(f"target {text}: {name} has {', '.join(rises)}")
        sign = match["sign"] if match["sign"] != "=" else ">=" if rises[metric] else "<="
        return cls(name, metric, sign, value)

    def __str__(self) -> str:
        return f"{self.objective}:{self.metric}{self.sign}{self.value:g}"

    def is_reached(self, scores: Scores) -> bool:
        """Whether the scores of an evaluation reach the target; a metric that was not a number does not."""
        score = scores[self.objective].get(self.metric)
        return score is not None and (score <= self.value if self.sign == "<=" else score >= self.value)


def _number(text: str) -> float | None:
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def rounds_to(targets: Sequence[Target], run: Run) -> int | None:
    """The first evaluated round in which all targets are reached; None if there is none."""
    reached = (record.round for record, scores in run.evaluated if all(t.is_reached(scores) for t in targets))
    return next(reached, None)


def costs(targets: Sequence[Target], run: Run) -> dict[str, float] | None:
    """Rounds, seconds without evaluations, uploaded and downloaded bytes until all targets are reached; None if they
    are not."""
    n = rounds_to(targets, run)
    if n is None:
        return None
    history = run.history[:n]
    return {
        "rounds": n,
        "seconds": sum(s for record in history for phase, s in record.seconds.items() if phase != EVALUATE),
        "uploaded": sum(sum(record.up.values()) for record in history),
        "downloaded": sum(sum(record.down.values()) for record in history),
    }


def _costs_by_name(targets: Sequence[Target], runs: Sequence[Run]) -> dict[str, list[float]]:
    """The costs by name, one number for each run that reaches all targets."""
    found = [cost for run in runs if (cost := costs(targets, run)) is not None]
    return {name: [cost[name] for cost in found] for name in COSTS}


def targets_table(
    title: str, targets: Sequence[Target], runs: LabelledRuns, diverged: Mapping[str, int] = MappingProxyType({})
) -> Table:
    """The costs of reaching all targets, a column for each label: mean and standard deviation over the seeds that reach
    them. `diverged` is the number of runs of a label that diverged, which are not among its runs."""
    columns = []
    labels = list(dict.fromkeys([*runs, *diverged]))
    for label in labels:
        same = runs.get(label, ())
        by_name = _costs_by_name(targets, same)
        cells = [sizes(values) if COSTS[name] else mean_and_spread(values) for name, values in by_name.items()]
        columns.append([*cells, f"{len(by_name['rounds'])} of {len(same) + diverged.get(label, 0)}"])
    names = [*COSTS, "seeds that reach it"]
    rows = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    return Table("targets", _title(title, targets), ["", *labels], rows)


def targets_chart(title: str, targets: Sequence[Target], runs: LabelledRuns) -> Chart:
    """A bar chart of these costs: mean, minimum and maximum over the seeds that reach all targets."""
    panels = []
    for cost, is_bytes in COSTS.items():
        lines = []
        for place, (label, same) in enumerate(runs.items()):
            values = [value / (1e6 if is_bytes else 1) for value in _costs_by_name(targets, same)[cost]]
            if values:
                mean = sum(values) / len(values)
                lines.append(Line(label, {"": [place]}, [mean], [min(values)], [max(values)], style="bar"))
        panels.append(Panel(cost, "megabytes" if is_bytes else cost, lines, ticks=[" "] * len(runs)))
    see = "Lower is better: what it takes until all targets are reached. A method without a bar does not reach them."
    return Chart("targets", _title(title, targets), see, panels)


def _title(title: str, targets: Sequence[Target]) -> str:
    return f"{title}: until {', '.join(map(str, targets))}"
