"""`fedcmoo bench speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AsJson, err, errors_for_people, out, print_json
from fedcmoo.settings import SettingsError


@with_options("problem", "seed", "config", "sets", "small", "data")
def speed(
    options: Options,
    rounds: Annotated[int, typer.Option(help="rounds measured on each engine")] = 8,
    workers: Annotated[
        list[int] | None, typer.Option(help="sizes of the pool to measure", show_default="one a core")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="three rounds, and less growth")] = False,
    growing: Annotated[bool, typer.Option("--growth/--no-growth", help="measure how rounds grow")] = True,
    trace: Annotated[Path | None, typer.Option("--profile", help="write a trace of one local round there")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the figure and speed.json go")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure rounds by phase and engine beside a plain PyTorch loop, and how they grow with the problem."""
    from fedcmoo.bench.speed import GROWTH, bench_speed, profile
    from fedcmoo.engines import Engine, Local, Pool
    from fedcmoo.engines.pool import usable_cores
    from fedcmoo.files import write_json
    from fedcmoo.methods import FedCMOO
    from fedcmoo.training import cohort_size

    with errors_for_people():
        chosen = options.resolve("fedcmoo", {"rounds": rounds})
        if not isinstance(chosen.method, FedCMOO):
            raise SettingsError(f"the speed of fedcmoo is measured, but method.name is {type(chosen.method).__name__}")
        built = chosen.build()
        n = cohort_size(chosen.clients_per_round, built)
        engines: dict[str, Engine] = {"local": Local()}
        engines |= {f"pool of {n}": Pool(workers=n) for n in workers or [usable_cores()]}
        bench = bench_speed(
            built,
            chosen.method,
            engines,
            rounds=3 if quick else chosen.rounds,
            clients_per_round=n,
            growth={what: values[: 3 if quick else None] for what, values in GROWTH.items() if growing},
            repeats=1 if quick else 3,
            say=err.print,
        )
        if trace is not None:
            profile(built, chosen.method, n, trace)
        if folder is not None:
            write_json(folder / "speed.json", bench.summary())
            bench.plot(folder / "speed.png")
        if as_json:
            print_json(bench.summary())
        else:
            out.print(*bench.tables(), sep="\n")
