"""`fedcmoo bench`: measurements, each printing a table and saving what it measured."""

from __future__ import annotations

import typer

from fedcmoo.cli.bench_engines import engines
from fedcmoo.cli.bench_gram import gram
from fedcmoo.cli.bench_privacy import privacy
from fedcmoo.cli.bench_speed import speed
from fedcmoo.cli.bench_traffic import traffic
from fedcmoo.cli.bench_weights import weights

app = typer.Typer(
    help="Measure Gram estimators, traffic, weighting rules, speed, engines, privacy.", no_args_is_help=True
)
app.command()(gram)
app.command()(traffic)
app.command()(speed)
app.command()(engines)
app.command()(weights)
app.command()(privacy)
