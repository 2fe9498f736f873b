"""The result of a comparison of Gram estimators: tables with the paper's numbers beside ours, and a chart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcmoo.compression import NUMBER
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table, mean_and_spread, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "gram.json"
"""The file name of the result of `fedcmoo bench gram`."""

SEE = (
    "Lower and further left is better: how wrong the server's Gram matrix is (in percent, at unit scale), against what "
    "a client uploads for it, where 1 is a whole model. The sketch (black) should lie lowest where uploads are small."
)
COLOURS = {
    "sketch": "#000000",
    "sketch, 32 bits": "#7f7f7f",
    "one-way randomized SVD": "#0072b2",
    "two-way randomized SVD": "#56b4e9",
    "one-way random mask": "#d55e00",
    "two-way random mask": "#e69f00",
    "one-way top-k": "#009e73",
    "two-way top-k": "#8fd3b6",
    "one-way quantizer": "#cc79a7",
    "sum of client Grams": "#a05a2c",
}
"""Colours by estimator; estimators not listed here are left out of the figure."""

USELESS = 300.0
"""The largest error shown, in percent."""

PAPER: Mapping[str, Mapping[str, float]] = {
    estimator: dict(zip(("celeba", "cifar10-mnist", "mnist-fmnist", "multimnist"), errors, strict=True))
    for estimator, errors in {
        "sum of client Grams": (50.95, 11.51, 20.61, 14.56),
        "two-way randomized SVD, as run": (10.15, 1.38, 2.04, 1.76),
        "two-way random mask, as run": (51.25, 10.26, 17.40, 12.98),
        "two-way top-k, as run and counted": (17.15, 0.15, 0.04, 0.15),
        "one-way randomized SVD": (10.87, 1.68, 1.79, 1.96),
        "one-way random mask": (76.54, 4.23, 6.29, 5.70),
        "one-way top-k, as counted": (24.13, 0.04, 0.01, 0.10),
    }.items()
}
"""The paper's table in appendix B: mean nRMSE in percent at an upload of d, by estimator and problem."""


@dataclass(frozen=True)
class GramRow:
    """The measurements of one estimator at one budget.

    Attributes:
        estimator, budget: the estimator, and its budget in multiples of d numbers.
        nrmse: ||G - exact|| / ||exact||, in each measured round.
        normalized: the same after scaling both matrices to unit scale, as FindWeights does.
        upload, download: bytes of a client in a round, excluding the model's.
        encode_seconds: seconds of a client, excluding the Jacobian.
        combine_seconds: seconds of the server in a round, including decoding.
        peak_bytes: additional memory at the peak, with everything in one process; None if unknown.
    """

    estimator: str
    budget: float
    nrmse: Sequence[float]
    normalized: Sequence[float]
    upload: float
    download: float
    encode_seconds: float
    combine_seconds: float
    peak_bytes: int | None


@dataclass(frozen=True)
class GramBench:
    """The rows of a comparison on one problem, with d shared parameters and M objectives."""

    problem: str
    d: int
    M: int
    rounds: int
    rows: Sequence[GramRow]

    @classmethod
    def load(cls, folder: Path) -> GramBench:
        """Read a comparison from a folder."""
        data: Mapping[str, Any] = json.loads((folder / FILE).read_text())
        return cls(**{**data, "rows": [GramRow(**row) for row in data["rows"]]})

    def errors(self, estimator: str) -> dict[float, float]:
        """The mean error in percent at unit scale, as in the paper, by budget."""
        return {row.budget: 100 * float(np.mean(row.normalized)) for row in self.rows if row.estimator == estimator}

    def tables(self) -> list[Table]:
        """Two tables with a line for each estimator and budget: its errors, and its costs."""
        return [self._errors(), self._costs()]

    def _errors(self) -> Table:
        title = f"nRMSE of G on {self.problem}, in percent: d = {self.d:,}, M = {self.M}, {self.rounds} rounds"
        largest = max(row.budget for row in self.rows)
        rows = []
        for row in self.rows:
            paper = PAPER.get(row.estimator, {}).get(self.problem) if row.budget in (0, largest) else None
            errors = [mean_and_spread([100 * error for error in values], 2) for values in (row.nrmse, row.normalized)]
            upload = f"{row.upload / (NUMBER * self.d):.2g}"
            rows.append([row.estimator, upload, *errors, "" if paper is None else f"{paper:.2f}"])
        note = (
            "Mean ± standard deviation over rounds. The paper's numbers are those of G brought to unit scale, as "
            "FindWeights takes it."
        )
        return Table("gram", title, ["estimator", "upload/d", "nRMSE", "unit scale", "paper"], rows, note=note)

    def _costs(self) -> Table:
        rows = [
            [
                row.estimator,
                size(row.upload),
                size(row.download),
                f"{1000 * row.encode_seconds:.2f} ms",
                f"{1000 * row.combine_seconds:.2f} ms",
                size(row.peak_bytes),
            ]
            for row in self.rows
        ]
        note = "Of a client: upload, download, encode (its Jacobian aside). Of a round at the server: combine."
        header = ["estimator", "upload", "download", "encode", "combine", "memory"]
        return Table("gram-costs", "what they cost", header, rows, note=note)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot error against upload, a line for each estimator, and save the picture if a path is given."""
        return draw(gram_chart("gram", [[self]], [self.problem]), path)


def gram_chart(name: str, benches: Sequence[Sequence[GramBench]], titles: Sequence[str], note: str = "") -> Chart:
    """A chart with a panel for each problem, which may have several comparisons, one for each seed."""
    panels = []
    for same, title in zip(benches, titles, strict=True):
        lines = [_line(same, estimator) for estimator in COLOURS]
        about = f"{title}: d = {same[0].d:,}, M = {same[0].M}"
        shown = [line for line in lines if line.y]
        lowest = min((y for line in shown for y in line.y if y > 0), default=USELESS / 100)
        y_range = (lowest / 2, USELESS)
        panels.append(Panel(about, "nRMSE of G, %", shown, x_log=True, y_log=True, y_range=y_range))
    return Chart(name, "Errors of Gram estimators against upload", SEE, panels, note)


def _line(benches: Sequence[GramBench], estimator: str) -> Line:
    rows = sorted((row for row in benches[0].rows if row.estimator == estimator), key=lambda row: row.upload)
    x = [row.upload / (NUMBER * benches[0].d) for row in rows]
    y = [float(np.mean([bench.errors(estimator)[row.budget] for bench in benches])) for row in rows]
    return Line(estimator, {"upload of a client / d numbers": x}, y, style="marked", colour=COLOURS[estimator])
