"""`fedcmoo bench engines`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fedcmoo.cli.options import AsJson, err, errors_for_people, out, print_json


def engines(
    names: Annotated[list[str] | None, typer.Argument(help="local, pool, ray, flower", show_default="all")] = None,
    rounds: Annotated[int, typer.Option(help="rounds on each; the first counts as part of the start")] = 5,
    nodes: Annotated[int, typer.Option(help="Flower's SuperNodes, on this machine")] = 3,
    secure: Annotated[bool, typer.Option("--secure", help="with secure sums, on local and flower")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a round costs on each engine when clients have almost nothing to do."""
    from fedcmoo.bench.engines import measure, table

    with errors_for_people():
        costs = measure(names or (), rounds, nodes, secure, err.print)
    if as_json:
        print_json([asdict(cost) for cost in costs])
    else:
        out.print(table(costs))
