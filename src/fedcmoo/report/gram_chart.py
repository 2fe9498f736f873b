"""Errors of Gram estimators against what a client uploads, as a chart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcmoo.bench.gram_result import GramBench, Row
from fedcmoo.compression import NUMBER
from fedcmoo.report.chart import Chart, Line, Panel

FILE = "gram.json"
"""What `fedcmoo bench gram` calls its result."""

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
"""By estimator; its other variants are left out of the figure, which has enough lines."""


def gram_chart(name: str, benches: Sequence[Sequence[GramBench]], titles: Sequence[str], note: str = "") -> Chart:
    """A panel for each problem, whose comparisons may be several, one for each seed."""
    panels = []
    for same, title in zip(benches, titles, strict=True):
        lines = [_line(same, estimator) for estimator in COLOURS]
        about = f"{title}: d = {same[0].d:,}, M = {same[0].M}"
        panels.append(Panel(about, "nRMSE of G, %", [line for line in lines if line.y], x_log=True, y_log=True))
    return Chart(name, "Errors of Gram estimators against upload", SEE, panels, note)


def load_bench(folder: Path) -> GramBench:
    """The comparison that lies in a folder."""
    data: Mapping[str, Any] = json.loads((folder / FILE).read_text())
    return GramBench(**{**data, "rows": [Row(**row) for row in data["rows"]]})


def errors(bench: GramBench, estimator: str) -> dict[float, float]:
    """The mean error in percent at unit scale, as the paper has it, by budget."""
    return {row.budget: 100 * float(np.mean(row.normalized)) for row in bench.rows if row.estimator == estimator}


def _line(benches: Sequence[GramBench], estimator: str) -> Line:
    rows = sorted((row for row in benches[0].rows if row.estimator == estimator), key=lambda row: row.upload)
    x = [row.upload / (NUMBER * benches[0].d) for row in rows]
    y = [float(np.mean([errors(bench, estimator)[row.budget] for bench in benches])) for row in rows]
    return Line(estimator, {"upload of a client / d numbers": x}, y, style="marked", colour=COLOURS[estimator])
