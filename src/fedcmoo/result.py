"""The result of `fit`: the trained model, the history of every round, a table and curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from fedcmoo.evaluation import metric_names
from fedcmoo.files import write_json
from fedcmoo.metrics import REMEDY
from fedcmoo.report.run_charts import run_chart, x_axis
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table, count, size
from fedcmoo.run import RESULT, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Result(Run):
    """The outcome of a run.

    Attributes:
        config: the table of its settings.
        history: one record per round.
        model: the trained model, a copy of the problem's.
        model_bytes: the size of the model's parameters.
        client_model: returns the model of a client, given its number, with its private parameters.
    """

    model: nn.Module
    model_bytes: int
    client_model: Callable[[int], nn.Module]

    @property
    def fsmgda_upload(self) -> int:
        """The bytes that FSMGDA, with M updates per client, would have uploaded over the same cohorts, without
        headers."""
        return sum(len(record.cohort) for record in self.history) * len(self.weights) * self.model_bytes

    @property
    def _title(self) -> str:
        return f"{self.method} on {self.problem}, {count(len(self.history), 'round')}"

    def table(self) -> Table:
        """A table of metrics, loss and weight per objective, followed by the traffic."""
        metrics = metric_names(self.scores)
        rows = []
        for name, weight in self.weights.items():
            values = self.scores.get(name, {})
            rows.append([name, *(f"{values[m]:.4f}" if m in values else "–" for m in metrics), f"{weight:.3f}"])
        note = (
            f"up {size(self.uploaded)} ({self.uploaded / max(self.fsmgda_upload, 1):.0%} of FSMGDA's "
            f"{size(self.fsmgda_upload)}), down {size(self.downloaded)}, {self.seconds:.1f} s"
            + ("" if self.epsilon is None else f", epsilon {self.epsilon:.3g}")
        )
        if self.starved:
            note += f". Starved by the weighting rule: {', '.join(self.starved)}. {REMEDY}"
        return Table("result", self._title, ["objective", *metrics, "weight"], rows, note=note)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Result: {self._title}>"

    def _repr_html_(self) -> str:
        return self.table().html()

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "fsmgda_upload_bytes": self.fsmgda_upload}

    def save(self, folder: Path) -> None:
        """Write curves.png and, last, result.json."""
        self.plot(folder / "curves.png")
        write_json(folder / RESULT, self.summary())

    def plot(self, path: str | Path | None = None, x: str = "round") -> Figure:
        """Plot curves of every objective's metrics and loss, and of the weights.

        Args:
            path: where to save the figure; None not to save it.
            x: "round", or "upload" for uploaded megabytes.
        """
        return draw(run_chart(self), path, x_axis(x))
