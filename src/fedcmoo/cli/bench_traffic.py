"""`fedcmoo bench traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.compare import with_progress
from fedcmoo.cli.options import (
    AsJson,
    ConfigFile,
    DataFolder,
    EngineName,
    ProblemName,
    Rounds,
    Seeds,
    Set,
    Small,
    err,
    errors_for_people,
    out,
    print_json,
)


def traffic(
    problem: ProblemName = None,
    uploads: Annotated[
        str, typer.Option(help="whole uploads of a client and round in multiples of d, separated by commas")
    ] = "0.1,0.05,0.02,0.01,0.005",
    seeds: Seeds = "0,1,2",
    rounds: Rounds = None,
    engine: EngineName = None,
    config: ConfigFile = None,
    sets: Set = None,
    small: Small = False,
    data: DataFolder = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the runs and the figure go")] = None,
    as_json: AsJson = False,
) -> None:
    """Train with updates in float32, in few bits and within small uploads, and compare accuracy and bytes.

    The paper's upload (a whole update, and a randomized SVD of d numbers) and FSMGDA are compared too. Each run has its
    own folder; run the same command again to continue an interrupted one.
    """
    from fedcmoo.bench.traffic import TrafficBench, configurations
    from fedcmoo.cli.resolving import given, numbers, resolve, seed_numbers
    from fedcmoo.comparison import compare_configs
    from fedcmoo.files import write_atomically, write_json
    from fedcmoo.report.static import draw

    with errors_for_people():
        options = given(rounds=rounds, engine=engine, data=data and str(data))
        fedcmoo, fsmgda = (resolve(problem, m, config, small, sets or [], options) for m in ("fedcmoo", "fsmgda"))
        chosen = configurations(fedcmoo, fsmgda, seed_numbers(seeds), numbers("--uploads", uploads))
        folder = folder or Path("runs") / f"traffic-{fedcmoo.problem.name}"
        try:
            bench = TrafficBench.of(compare_configs(chosen, folder, with_progress))
        except KeyboardInterrupt:
            err.print("interrupted; what is done is saved. The same command goes on with it.")
            raise typer.Exit(130) from None
        write_json(folder / "traffic.json", bench.summary())
        write_atomically(folder / "traffic.md", bench.table().markdown().encode())
        draw(bench.chart(), folder / "traffic.png")
        if as_json:
            print_json(bench.summary())
        else:
            out.print(bench.table())
            out.print(f"in {folder}: traffic.png, .md and .json, and a folder for each run", soft_wrap=True)
