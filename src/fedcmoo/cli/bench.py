"""`fedcmoo bench`: measurements, each printing a table and saving what it measured."""

from __future__ import annotations

import typer

from fedcmoo.cli.bench_engines import engines
from fedcmoo.cli.bench_gram import gram
from fedcmoo.cli.bench_speed import speed

app = typer.Typer(help="Measure Gram estimators, speed and engines on this machine.", no_args_is_help=True)
app.command()(gram)
app.command()(speed)
app.command()(engines)
