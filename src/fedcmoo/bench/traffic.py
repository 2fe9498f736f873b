"""Accuracy against upload: the same training with updates in float32 and in fewer bits, and competing methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedcmoo.comparison import Comparison
from fedcmoo.compression import NUMBER, Rotated
from fedcmoo.config import RunConfig
from fedcmoo.gram import TwoWay
from fedcmoo.methods import Method
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.table import Table, mean_and_spread, size
from fedcmoo.run import Run

SEE = (
    "Higher and further left is better: accuracy after the same number of rounds, against what a client uploads in a "
    "round, where 1 is a whole model in float32. FedCMOO should stay level far to the left of the paper's setting."
)


@dataclass(frozen=True)
class TrafficRow:
    """The measurements of one way to send updates.

    Attributes:
        label, method: its label and method.
        scores: by objective, the first metric after the last round, one for each seed.
        upload: bytes of a client in a round.
        total: bytes of all clients in the whole run.
    """

    label: str
    method: str
    scores: Mapping[str, Sequence[float]]
    upload: float
    total: float

    @property
    def means(self) -> list[float]:
        """The mean over objectives, one for each seed."""
        return [float(mean) for mean in np.mean(list(self.scores.values()), axis=0)]


@dataclass(frozen=True)
class TrafficBench:
    """The rows of one problem, with d parameters and M objectives."""

    problem: str
    d: int
    M: int
    rounds: int
    rows: Sequence[TrafficRow]

    @classmethod
    def of(cls, comparison: Comparison, d: int) -> TrafficBench:
        """Build the result from the runs of `configurations`, for a model of d parameters."""
        first = next(iter(comparison.results.values()))[0]
        rows = [_row(label, runs) for label, runs in comparison.results.items()]
        return cls(comparison.problem, d, len(first.weights), len(first.history), rows)

    def table(self) -> Table:
        """A table with a row for each way: upload, and each objective's metric, mean ± standard deviation of seeds."""
        header = ["", "upload/d", "a client and round", "whole run", *self.rows[0].scores, "mean"]
        rows = []
        for row in self.rows:
            scores = [mean_and_spread(values, 4) for values in (*row.scores.values(), row.means)]
            rows.append([row.label, f"{row.upload / NUMBER / self.d:.4f}", size(row.upload), size(row.total), *scores])
        title = f"{self.problem}: d = {self.d:,}, M = {self.M}, {self.rounds} rounds"
        return Table("traffic", title, header, rows)

    def chart(self) -> Chart:
        """A chart of mean accuracy over upload, with a line for each method and a band over seeds."""
        methods = dict.fromkeys(row.method for row in self.rows)
        panel = Panel("", "mean over objectives", [self._line(method) for method in methods], x_log=True)
        return Chart("traffic", f"{self.problem} after {self.rounds} rounds", SEE, [panel])

    def summary(self) -> dict[str, Any]:
        """The rows as plain data, for JSON."""
        return asdict(self)

    def _line(self, method: str) -> Line:
        rows = sorted((row for row in self.rows if row.method == method), key=lambda row: row.upload)
        return Line(
            method,
            {"upload of a client and round / d numbers": [row.upload / NUMBER / self.d for row in rows]},
            [float(np.mean(row.means)) for row in rows],
            [min(row.means) for row in rows],
            [max(row.means) for row in rows],
            style="marked",
        )


def configurations(
    fedcmoo: RunConfig, fsmgda: RunConfig, seeds: Sequence[int], uploads: Sequence[float], bits: Sequence[int]
) -> dict[str, list[RunConfig]]:
    """The configurations to compare, by label, one for each seed.

    Args:
        fedcmoo: the problem with FedCMOO, updates in float32.
        fsmgda: the same with FSMGDA.
        seeds: the seeds of the runs.
        uploads: total uploads to compare, per client and round, in multiples of d numbers.
        bits: bits per entry of the update to compare, besides the default sketch.
    """
    base = fedcmoo.method
    methods: dict[str, Method] = {
        "fsmgda": fsmgda.method,
        "paper": replace(base, gram=TwoWay()),  # type: ignore[call-arg]
        "float32": base,
        **{f"{b}-bit": replace(base, update=Rotated(), update_budget=b / 32) for b in bits},
        **{f"upload-{upload:g}": base.within(upload) for upload in uploads},
    }
    return {label: [replace(fedcmoo, method=m, seed=seed) for seed in seeds] for label, m in methods.items()}


def _row(label: str, results: Sequence[Run]) -> TrafficRow:
    scores = {name: [_score(r.scores[name]) for r in results] for name in results[0].scores}
    replies = [sum(len(record.cohort) for record in r.history) for r in results]
    upload = float(np.mean([r.uploaded / n for r, n in zip(results, replies, strict=True)]))
    return TrafficRow(label, results[0].method, scores, upload, float(np.mean([r.uploaded for r in results])))


def _score(values: Mapping[str, float]) -> float:
    """An objective's first metric, or its loss if it has none."""
    return next((value for metric, value in values.items() if metric != "loss"), values["loss"])
