"""Tables as data: printed in a terminal, shown in notebooks and pages, written as Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

import numpy as np
import rich.table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

CsvRow = Mapping[str, str | float | int | None]


@dataclass(frozen=True)
class Table:
    """A table of text cells.

    Attributes:
        name: of its files.
        title: above it.
        header: the columns' names.
        rows: cells as text.
        records: the numbers behind them, one row of the CSV each; if there are none, the CSV has the cells.
        note: text below it, such as the scale at which it was made.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[CsvRow] = ()
    note: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A grid if the terminal is wide enough, else one block of lines for each row."""
        grid = rich.table.Table(title=Text(self.title), caption=Text(self.note) if self.note else None)
        for n, name in enumerate(self.header):
            grid.add_column(Text(name), justify="right" if n else "left", no_wrap=True)
        for row in self.rows:
            grid.add_row(*map(Text, row))
        if console.measure(grid, options=options.update(max_width=10**6)).maximum <= options.max_width:
            yield grid
            return
        yield Text(self.title, style="italic")
        for row in self.rows:
            yield Text(row[0], style="bold")
            yield from (Text(f"  {name}: {cell}") for name, cell in zip(self.header[1:], row[1:], strict=True) if cell)
        if self.note:
            yield Text(self.note, style="italic dim")

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=100).print(self)
        return text.getvalue()

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

    def html(self, marks: Mapping[str, str] = MappingProxyType({})) -> str:
        """The table as HTML.

        Args:
            marks: cells that are shown as a mark, and the mark's CSS class. A table with marks becomes a list of cards
                on a narrow screen.
        """

        def cell(name: str, text: str) -> str:
            content = f'<span class="verdict {marks[text]}">{escape(text)}</span>' if text in marks else escape(text)
            return f'<td data-name="{escape(name)}">{content}</td>'

        cards = " class=cards" if any(text in marks for row in self.rows for text in row) else ""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        rows = "\n".join(f"<tr>{''.join(map(cell, self.header, row))}</tr>" for row in self.rows)
        title = f"<h3>{escape(self.title)}</h3>" if self.title else ""
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'{title}<div class="scroll"><table{cards}><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>'
            f"</div>{note}"
        )


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean, with the standard deviation if there are several values; a dash if there are none.

    >>> mean_and_spread([1.0, 3.0]), mean_and_spread([2.0]), mean_and_spread([])
    ('2.0 ± 1.4', '2.0', '–')
    """
    if not values:
        return "–"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def size(nbytes: float | None) -> str:
    """A number of bytes in a readable unit; a dash if it is unknown.

    >>> size(1_234_567), size(None)
    ('1.2 MB', '–')
    """
    if nbytes is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def sizes(values: Sequence[float]) -> str:
    """The mean of numbers of bytes in a readable unit, with the standard deviation; a dash if there are none.

    >>> sizes([1e6, 3e6]), sizes([2000]), sizes([])
    ('2.0 ± 1.4 MB', '2.0 kB', '–')
    """
    if not values:
        return "–"
    unit = size(float(np.mean(values))).split()[1]
    scale = 1000 ** ("B", "kB", "MB", "GB", "TB").index(unit)
    return f"{mean_and_spread([value / scale for value in values])} {unit}"


def count(n: int, noun: str) -> str:
    """A number followed by its noun in singular or plural.

    >>> count(1, "round"), count(3, "seed")
    ('1 round', '3 seeds')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
