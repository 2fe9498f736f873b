"""The outcome of a target: tables, charts and verdicts, saved as JSON so that the page can be rebuilt at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedcmoo.files import write_atomically
from fedcmoo.report.chart import Chart
from fedcmoo.report.static import draw, save
from fedcmoo.report.table import Table
from fedcmoo.reproduce.claims import Verdict


@dataclass(frozen=True)
class Made:
    """The tables, charts and measurements that a target derives from its runs.

    Attributes:
        tables, charts: for the page.
        measured: the claims' quantities by claim name, one number for each seed.
    """

    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The complete result of a target.

    Attributes:
        target, title: which target.
        scale: the scale at which it was made.
        full: the parts that have the paper's scale.
        tables, charts, verdicts: its results.
        failures: by part, why it could not be made.
        configurations: the configurations of its runs, by name.
    """

    target: str
    title: str
    scale: str
    full: Sequence[str]
    tables: Sequence[Table]
    charts: Sequence[Chart]
    verdicts: Sequence[Verdict]
    failures: Mapping[str, str]
    configurations: Mapping[str, str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be made."""
        return not self.tables and not self.charts

    @staticmethod
    def place(folder: Path, target: str) -> Path:
        """The path of a target's outcome within a reproduction's folder."""
        return folder / "data" / f"{target}.json"

    def save(self, folder: Path) -> None:
        """Write tables as Markdown and CSV, charts as SVG and PNG, and all of it as JSON."""
        place = self.place(folder, self.target)
        place.parent.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            write_atomically(folder / f"{table.name}.md", table.markdown().encode())
            write_atomically(folder / f"{table.name}.csv", table.csv().encode())
        for chart in self.charts:
            figure = draw(chart)
            for suffix in (".svg", ".png"):
                save(figure, folder / f"{chart.name}{suffix}")
        text = json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"
        write_atomically(place, text.encode())

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Read what `save` wrote."""
        data: dict[str, Any] = json.loads(path.read_text())
        return cls(
            **{
                **data,
                "tables": [Table(**table) for table in data["tables"]],
                "charts": [Chart.from_json(chart) for chart in data["charts"]],
                "verdicts": [Verdict.from_json(verdict) for verdict in data["verdicts"]],
            }
        )
