"""`fedcmoo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.options import errors_for_people, out


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, comparisons or sweeps, or folders that hold such folders")
    ],
    page: Annotated[Path, typer.Option("--out", "-o", help="the page")] = Path("report.html"),
) -> None:
    """Make one interactive page from any runs; it works without network."""
    from fedcmoo.overview import report as write_report

    with errors_for_people():
        write_report(runs, page)
    out.print(f"written: {page}", soft_wrap=True)
