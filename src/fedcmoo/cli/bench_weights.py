"""`fedcmoo bench weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AGAIN, AsJson, Seeds, errors_for_people, out, print_json, progress


@with_options("rounds", "data")
def weights(
    options: Options,
    rules: Annotated[
        str | None,
        typer.Option(
            help="weighting rules, separated by commas", show_default="all but krum, which wants three objectives"
        ),
    ] = None,
    problems: Annotated[
        str | None, typer.Option(help="ready-made problems, separated by commas", show_default="the suite")
    ] = None,
    seeds: Seeds = "0,1,2",
    folder: Annotated[Path, typer.Option("--out", "-o", help="the folder of the runs")] = Path("runs/bench-weights"),
    as_json: AsJson = False,
) -> None:
    """Compare weighting rules with FedAvg on problems whose objectives differ in scale or conflict.

    Each run has its own folder; run the same command again to continue an interrupted one.
    """
    from fedcmoo.bench.weights import SUITE, Suite
    from fedcmoo.cli.resolving import different, known, seed_numbers
    from fedcmoo.config import variants
    from fedcmoo.experiments import PROBLEMS
    from fedcmoo.files import write_atomically, write_json
    from fedcmoo.weights import WEIGHTS
    from fedcmoo.weights.scalarization import SCALARIZATIONS

    every = {**WEIGHTS, **SCALARIZATIONS}
    with errors_for_people(AGAIN):
        chosen = different("--rules", rules) if rules else [name for name in every if name != "krum"]
        on = different("--problems", problems) if problems else SUITE
        for rule in chosen:
            known("weighting rule", rule, every)
        for problem in on:
            known("problem", problem, [*PROBLEMS, *variants()])
        bench = Suite(folder, seed_numbers(seeds), options.given(), progress).bench(chosen, on)
        table = bench.overview()
        write_json(folder / "weights.json", bench.summary())
        write_atomically(folder / "weights.md", table.markdown().encode())
        write_atomically(folder / "weights.csv", table.csv().encode())
        bench.plot(folder / "weights.png")
        if as_json:
            print_json(bench.summary())
        else:
            out.print(table)
            out.print(f"in {folder}: weights.png, .md, .csv and .json, and a folder for each run", soft_wrap=True)
