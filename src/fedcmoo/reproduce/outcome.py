"""What a target gives: tables, charts and verdicts, kept as JSON, so that a page can be made of all at any time."""

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
    """What a target makes of its results.

    Attributes:
        tables, charts: for the page.
        measured: the quantities of claims by the claims' names, one number for each seed.
    """

    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A target's result.

    Attributes:
        target, title: which target.
        scale: at what scale it was made.
        full: the parts that have the paper's scale.
        tables, charts, verdicts: what came of it.
        failures: by part, what could not be made and why.
        configurations: of its runs, by name.
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
        """Where a target's outcome is kept within the folder of a reproduction."""
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
