"""Tables as data: for people as Markdown, for programs as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Record = Mapping[str, str | float | int | None]
"""A row of a CSV."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: of its files.
        title: above it.
        header: the columns' names.
        rows: cells for people, in the paper's arrangement.
        records: the numbers behind them, one row of the CSV each; if there are none, the CSV has the cells.
        note: at what scale it was made.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[Record] = ()
    note: str = ""

    def markdown(self) -> str:
        """The table with its title above and its note below.

        >>> print(Table("t", "Title", ["a", "b"], [["1", "x|y"]]).markdown())
        ### Title
        <BLANKLINE>
        | a | b |
        |---|---|
        | 1 | x\\|y |
        <BLANKLINE>
        """
        lines = [_row(self.header), "|" + "---|" * len(self.header), *(_row(row) for row in self.rows)]
        note = f"\n{self.note}\n" if self.note else ""
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n" + note

    def csv(self) -> str:
        """The numbers, with the note as a last column."""
        names: list[str] = list(dict.fromkeys(name for r in self.records for name in r)) or list(self.header)
        rows = [[r.get(name) for name in names] for r in self.records] or [list(row) for row in self.rows]
        last = {"note": self.note} if self.note else {}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *last])
        writer.writerows([*row, *last.values()] for row in rows)
        return text.getvalue()


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean, and the standard deviation where there are several values.

    >>> mean_and_spread([1.0, 3.0]), mean_and_spread([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
