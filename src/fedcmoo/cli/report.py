"""`fedcmoo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.common import errors_for_people, out
from fedcmoo.overview import report as write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, comparisons or sweeps")],
    page: Annotated[Path, typer.Option("--out", "-o", help="the page")] = Path("report.html"),
) -> None:
    """Make one interactive page from any runs; it works without network.

    RUNS are folders of runs, comparisons or sweeps, or folders that such folders are in.
    """
    with errors_for_people():
        write_report(runs, page)
    out.print(f"written: {page}", soft_wrap=True)
