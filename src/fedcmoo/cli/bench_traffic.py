"""`fedcmoo bench traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.compare import with_progress
from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AGAIN, AsJson, Seeds, errors_for_people, out, print_json


@with_options("problem", "rounds", "engine", "config", "sets", "small", "data")
def traffic(
    options: Options,
    uploads: Annotated[
        str, typer.Option(help="whole uploads of a client and round in multiples of d, separated by commas")
    ] = "0.1,0.05,0.02,0.01,0.005",
    seeds: Seeds = "0,1,2",
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the runs and the figure go")] = None,
    as_json: AsJson = False,
) -> None:
    """Train with updates in float32, in few bits and within small uploads, and compare accuracy and bytes.

    The paper's upload (a whole update, and a randomized SVD of d numbers) and FSMGDA are compared too. Each run has its
    own folder; run the same command again to continue an interrupted one.
    """
    from fedcmoo.bench.traffic import TrafficBench, configurations
    from fedcmoo.cli.resolving import numbers, seed_numbers
    from fedcmoo.comparison import compare_configs
    from fedcmoo.files import write_atomically, write_json
    from fedcmoo.report.static import draw

    with errors_for_people(AGAIN):
        fedcmoo, fsmgda = (options.resolve(method) for method in ("fedcmoo", "fsmgda"))
        chosen = configurations(fedcmoo, fsmgda, seed_numbers(seeds), numbers("--uploads", uploads))
        folder = folder or Path("runs") / f"traffic-{fedcmoo.problem.name}"
        bench = TrafficBench.of(compare_configs(chosen, folder, with_progress))
        write_json(folder / "traffic.json", bench.summary())
        write_atomically(folder / "traffic.md", bench.table().markdown().encode())
        draw(bench.chart(), folder / "traffic.png")
        if as_json:
            print_json(bench.summary())
        else:
            out.print(bench.table())
            out.print(f"in {folder}: traffic.png, .md and .json, and a folder for each run", soft_wrap=True)
