"""`fedcmoo bench privacy`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fedcmoo.cli.options import AsJson, err, errors_for_people, out, print_json
from fedcmoo.settings import SettingsError


def privacy(
    problem: Annotated[str, typer.Option(help="two-digits or multimnist")] = "two-digits",
    epsilons: Annotated[str, typer.Option(help="budgets, separated by commas; none for no noise")] = "none,32,8,2",
    clients: Annotated[str, typer.Option(help="numbers of clients, separated by commas")] = "100,1000",
    rounds: Annotated[int, typer.Option(help="rounds of each run")] = 30,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy with differential privacy, for several budgets and numbers of clients."""
    from fedcmoo.bench.privacy import measure, table
    from fedcmoo.cli.resolving import different

    with errors_for_people():
        try:
            budgets = [None if e == "none" else float(e) for e in different("--epsilons", epsilons)]
            numbers = [int(n) for n in different("--clients", clients)]
        except ValueError as error:
            raise SettingsError(f"--epsilons and --clients take numbers: {error}") from None
        costs = measure(problem, numbers, budgets, rounds, err.print)
    if as_json:
        print_json([asdict(cost) for cost in costs])
    else:
        out.print(table(costs, rounds))
