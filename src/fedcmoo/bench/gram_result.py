"""What a comparison of Gram estimators found: a table with the paper's numbers beside ours, and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from fedcmoo.compression import NUMBER
from fedcmoo.result import size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Mapping[str, Mapping[str, float]] = {
    "sum of client Grams": {"celeba": 50.95, "cifar10-mnist": 11.51, "mnist-fmnist": 20.61, "multimnist": 14.56},
    "two-way randomized SVD, as run": {
        "celeba": 10.15,
        "cifar10-mnist": 1.38,
        "mnist-fmnist": 2.04,
        "multimnist": 1.76,
    },
    "two-way random mask, as run": {
        "celeba": 51.25,
        "cifar10-mnist": 10.26,
        "mnist-fmnist": 17.40,
        "multimnist": 12.98,
    },
    "two-way top-k, as run and counted": {
        "celeba": 17.15,
        "cifar10-mnist": 0.15,
        "mnist-fmnist": 0.04,
        "multimnist": 0.15,
    },
    "one-way randomized SVD": {"celeba": 10.87, "cifar10-mnist": 1.68, "mnist-fmnist": 1.79, "multimnist": 1.96},
    "one-way random mask": {"celeba": 76.54, "cifar10-mnist": 4.23, "mnist-fmnist": 6.29, "multimnist": 5.70},
    "one-way top-k, as counted": {"celeba": 24.13, "cifar10-mnist": 0.04, "mnist-fmnist": 0.01, "multimnist": 0.10},
}
"""The paper's table in appendix B: mean nRMSE in percent at an upload of d, by estimator and problem."""


@dataclass(frozen=True)
class Row:
    """One estimator at one budget.

    Attributes:
        estimator, budget: which; the budget in multiples of d numbers.
        nrmse: ||G - exact|| / ||exact||, in each measured round.
        normalized: the same after both matrices are brought to unit scale, as FindWeights takes them.
        upload, download: bytes of a client in a round, the model's own aside.
        encode_seconds: of a client, the Jacobian's own time aside.
        combine_seconds: of the server in a round, decoding included.
        peak_bytes: memory beyond what there was before, of everything in one process; None if unknown.
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
    rows: Sequence[Row]

    def table(self) -> Group:
        """A line for each estimator and budget: its errors in one table, what it costs in another."""
        return Group(self._errors(), self._costs())

    def _errors(self) -> Table:
        title = f"nRMSE of G on {self.problem}, in percent: d = {self.d:,}, M = {self.M}, {self.rounds} rounds"
        table = _table(title, "upload/d", "nRMSE", "unit scale", "paper")
        largest = max(row.budget for row in self.rows)
        for row in self.rows:
            paper = PAPER.get(row.estimator, {}).get(self.problem) if row.budget in (0, largest) else None
            table.add_row(
                row.estimator,
                f"{row.upload / (NUMBER * self.d):.2g}",
                _mean_and_spread(row.nrmse),
                _mean_and_spread(row.normalized),
                "" if paper is None else f"{paper:.2f}",
            )
        table.caption = (
            "Mean ± standard deviation over rounds. The paper's numbers are those of G brought to unit scale, as "
            "FindWeights takes it."
        )
        return table

    def _costs(self) -> Table:
        table = _table("what they cost", "upload", "download", "encode", "combine", "memory")
        for row in self.rows:
            table.add_row(
                row.estimator,
                size(row.upload),
                size(row.download),
                f"{1000 * row.encode_seconds:.2f} ms",
                f"{1000 * row.combine_seconds:.2f} ms",
                "–" if row.peak_bytes is None else size(row.peak_bytes),
            )
        table.caption = "Of a client: upload, download, encode (its Jacobian aside). Of a round at the server: combine."
        return table

    def plot(self, path: str | Path | None = None) -> Figure:
        """nRMSE against upload, a line for each estimator, both axes logarithmic."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.5, 4.8), layout="constrained")
        ax = figure.subplots()
        for name in dict.fromkeys(row.estimator for row in self.rows):
            rows = sorted((row for row in self.rows if row.estimator == name), key=lambda row: row.upload)
            x = [row.upload / (NUMBER * self.d) for row in rows]
            y = [100 * float(np.mean(row.nrmse)) for row in rows]
            style = {"lw": 2.5, "zorder": 3} if name == "sketch" else {"lw": 1, "ls": "--" if "as run" in name else "-"}
            ax.plot(x, y, marker="o", ms=4, label=name, **style)
        ax.set(xscale="log", yscale="log", xlabel="upload of a client / d numbers", ylabel="nRMSE of G, %")
        ax.set_title(f"{self.problem}: d = {self.d:,}, M = {self.M}")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def summary(self) -> dict[str, Any]:
        """The comparison as plain data, for JSON."""
        return asdict(self)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("estimator", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _mean_and_spread(errors: Sequence[float]) -> str:
    percent = 100 * np.asarray(errors)
    mean, spread = percent.mean(), percent.std()
    return (
        (f"{mean:.3g}" if mean < 100 else f"{mean:,.0f}")
        + " ± "
        + (f"{spread:.1g}" if spread < 9.5 else f"{spread:,.0f}")
    )
