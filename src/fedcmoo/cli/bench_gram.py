"""`fedcmoo bench gram`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AsJson, err, errors_for_people, out, print_json


@with_options("problem", "seed", "config", "sets", "small", "data")
def gram(
    options: Options,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", help="one that estimates a Gram matrix", show_default="fedcmoo-pref"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="the number of rounds")] = 20,
    every: Annotated[int, typer.Option(help="rounds from one comparison to the next")] = 1,
    budgets: Annotated[
        str, typer.Option(help="uploads in multiples of d, separated by commas")
    ] = "1,0.3,0.1,0.03,0.01",
    only: Annotated[str | None, typer.Option(help="parts of estimators' names, separated by commas")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the figure and gram.json go")] = None,
    as_json: AsJson = False,
) -> None:
    """Train, and compare every Gram estimator at equal uploads: error, bytes, time and memory."""
    from fedcmoo.bench.gram import bench_gram
    from fedcmoo.callbacks import ProgressBar
    from fedcmoo.cli.resolving import numbers
    from fedcmoo.files import write_json
    from fedcmoo.methods import FedCMOO, FedCMOOPref

    with errors_for_people():
        chosen = options.resolve(method or "fedcmoo-pref", {"rounds": rounds})
        if not isinstance(chosen.method, (FedCMOO, FedCMOOPref)):
            raise ValueError(
                f"--method must be one that estimates a Gram matrix, but got {type(chosen.method).__name__}"
            )
        bench = bench_gram(
            chosen.build(),
            chosen.method,
            chosen.rounds,
            every=every,
            budgets=numbers("--budgets", budgets),
            only=only.split(",") if only else (),
            clients_per_round=chosen.clients_per_round,
            seed=chosen.seed,
            callbacks=[ProgressBar(err)],
        )
        if folder is not None:
            write_json(folder / "gram.json", bench.summary())
            bench.plot(folder / "gram.png")
        if as_json:
            print_json(bench.summary())
        else:
            out.print(*bench.tables(), sep="\n")
