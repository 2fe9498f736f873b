"""The command line: a thin layer over the public API."""

from typing import Annotated

import typer

from fedcmoo import __version__
from fedcmoo.cli import bench, data, flower
from fedcmoo.cli.compare import compare
from fedcmoo.cli.listing import list_names
from fedcmoo.cli.pareto import pareto
from fedcmoo.cli.reproduce import reproduce
from fedcmoo.cli.run import report, resume, run

app = typer.Typer(
    name="fedcmoo",
    help="Federated multi-objective optimization: one model, several objectives, traffic that does not grow with them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"fedcmoo {__version__}")
        raise typer.Exit


@app.callback()
def without_command(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


app.command()(run)
app.command()(resume)
app.command()(compare)
app.command()(pareto)
app.command()(reproduce)
app.command()(report)
app.command("list")(list_names)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")
