"""What `fit` returns: the trained model, the history of every round, a table and curves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from torch import nn

from fedcmoo.evaluation import Scores
from fedcmoo.history import Record
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Attributes:
        problem, method, seed: what was run.
        model: the trained model, a copy of the problem's.
        history: one record per round.
        sizes: d, M and the like.
    """

    problem: Problem
    method: Method
    model: nn.Module
    history: Sequence[Record]
    sizes: Sizes
    seed: int

    @property
    def scores(self) -> Scores:
        """Losses and metrics by objective of the last evaluation (test data, else validation data); empty without
        any."""
        return next((record.scores for record in reversed(self.history) if record.scores), {})

    @property
    def weights(self) -> dict[str, float]:
        """The last round's weights by objective."""
        return self.history[-1].weights

    @property
    def uploaded(self) -> int:
        """Bytes that all clients together sent to the server."""
        return sum(sum(record.up.values()) for record in self.history)

    @property
    def downloaded(self) -> int:
        """Bytes that the server sent to all clients together."""
        return sum(sum(record.down.values()) for record in self.history)

    @property
    def fsmgda_upload(self) -> int:
        """Bytes that FSMGDA, with M updates a client, would have uploaded over the same cohorts."""
        per_client = self.sizes.M * self.sizes.d * self.sizes.dtype.itemsize
        return sum(len(record.cohort) for record in self.history) * per_client

    @property
    def seconds(self) -> float:
        """Time of all rounds."""
        return sum(sum(record.seconds.values()) for record in self.history)

    def table(self) -> Table:
        """Metrics, loss and weight per objective, with the traffic in the caption."""
        names = [metric.name for objective in self.problem.objectives for metric in objective.metrics]
        metrics = list(dict.fromkeys(names))
        table = Table(title=f"{type(self.method).__name__} on {self.problem.name}, {len(self.history)} rounds")
        table.add_column("objective")
        for metric in (*metrics, "loss", "weight"):
            table.add_column(metric, justify="right")
        for objective in self.problem.objectives:
            values = self.scores.get(objective.name, {})
            cells = [f"{values[m]:.4f}" if m in values else "–" for m in (*metrics, "loss")]
            table.add_row(objective.name, *cells, f"{self.weights[objective.name]:.3f}")
        share = self.uploaded / self.fsmgda_upload
        table.caption = (
            f"up {size(self.uploaded)} ({share:.0%} of FSMGDA's {size(self.fsmgda_upload)}), "
            f"down {size(self.downloaded)}, {self.seconds:.1f} s"
        )
        return table

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=100).print(self.table())
        return text.getvalue()

    def summary(self) -> dict[str, Any]:
        """The result as plain data, for JSON."""
        return {
            "problem": self.problem.name,
            "method": type(self.method).__name__,
            "seed": self.seed,
            "rounds": len(self.history),
            "scores": self.scores,
            "weights": self.weights,
            "uploaded_bytes": self.uploaded,
            "downloaded_bytes": self.downloaded,
            "fsmgda_upload_bytes": self.fsmgda_upload,
            "seconds": self.seconds,
        }

    def plot(self, path: str | Path | None = None, x: str = "round") -> Figure:
        """Curves of every objective's metrics and loss, and of the weights.

        Args:
            path: where to save the picture; None not to.
            x: "round", or "upload" for uploaded megabytes.
        """
        from fedcmoo.report.curves import plot_curves  # matplotlib takes a second to import

        figure = plot_curves({type(self.method).__name__: [self.history]}, x=x, title=self.problem.name)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


def size(nbytes: float) -> str:
    """Bytes for people.

    >>> size(1_234_567)
    '1.2 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
