"""`fedcmoo data`: download data sets, list them, and show how a problem distributes them over clients."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AsJson, DataFolder, err, errors_for_people, out, show

app = typer.Typer(
    help="Download data sets, list which are present, show how a problem distributes them.", no_args_is_help=True
)


@app.command()
def get(
    names: Annotated[
        list[str], typer.Argument(help="data sets, or problems for all that they need (see: fedcmoo data status)")
    ],
    data: DataFolder = None,
) -> None:
    """Download data sets from their official sources; continue an interrupted download."""
    from fedcmoo.data.download import download
    from fedcmoo.data.folder import data_folder

    folder = data_folder(data)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with errors_for_people(), Progress(*columns, console=err) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(path: str, done: int, total: int | None) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(path)
            bars.update(tasks[path], completed=done, total=total)

        arrived = [path for name in names for path in download(name, folder, progress)]
    news = f"{len(arrived)} files downloaded to" if arrived else "all files are present in"
    out.print(f"{news} {folder}", soft_wrap=True)


@app.command()
def status(data: DataFolder = None, as_json: AsJson = False) -> None:
    """Show which data sets are present, and which ready-made problems can be run with them."""
    from fedcmoo.data.catalogue import DATA_SETS, NEEDED_BY, missing_data
    from fedcmoo.data.folder import data_folder

    folder = data_folder(data)
    missing = {name: data_set.missing(folder) for name, data_set in DATA_SETS.items()}
    ready = {problem: not missing_data(problem, folder) for problem in NEEDED_BY}
    sets, problems = (
        Table(what, "state", box=None, padding=(0, 2), title=f"{what}s", title_justify="left")
        for what in ("data set", "problem")
    )
    for name, things in missing.items():
        sets.add_row(name, "missing " + "; ".join(things) if things else "present")
    for problem, can_run in ready.items():
        problems.add_row(problem, "ready" if can_run else f"fedcmoo data get {problem}")
    about = {"folder": str(folder), "missing": missing, "ready": ready}
    show(as_json, about, f"data folder: {folder}", sets, problems)


@app.command()
@with_options("seed", "sets", "small", "data")
def partition(
    options: Options,
    problem: Annotated[str, typer.Argument(help="a ready-made problem (see: fedcmoo list)")],
    figure: Annotated[
        Path | None, typer.Option("--out", "-o", help="where to draw the figure", show_default="PROBLEM-partition.png")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a problem distributes its labels over the clients, with the settings that `fedcmoo run` would use."""
    from fedcmoo.data.skew import draw_skew
    from fedcmoo.report.static import save

    with errors_for_people():
        config = replace(options, problem=problem).resolve()
        skew = config.problem.skew(config.seed, None if config.data is None else Path(config.data))
        path = figure or Path(f"{problem}-partition.png")
        if skew.counts:
            save(draw_skew(skew), path)
            err.print(f"drawn in {path}", soft_wrap=True)
        counts = {name: values.tolist() for name, values in skew.counts.items()}
        about = {"sizes": skew.sizes.tolist(), "reused": skew.partition.reused, "unused": skew.partition.unused}
        show(as_json, about | {"counts": counts}, *skew.lines())
