"""`fedcmoo reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedcmoo.callbacks import Callback, ProgressBar
from fedcmoo.cli.common import DataFolder, Set, err, errors_for_people, out, settings
from fedcmoo.reproduce.command import choose, planned
from fedcmoo.reproduce.command import reproduce as run_targets
from fedcmoo.reproduce.runs import Runs
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.summary import PAGE
from fedcmoo.reproduce.targets import TARGETS, Target


def reproduce(
    targets: Annotated[list[str], typer.Argument(help=f"{', '.join(TARGETS)}, or all", metavar="TARGET...")],
    full: Annotated[
        bool, typer.Option("--full/--small", help="the paper's scale, or one that two cores finish in minutes")
    ] = False,
    rounds: Annotated[int | None, typer.Option(help="the rounds of every run", show_default="the experiment's")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="separated by commas", show_default="0 at small scale, 0,1,2 at full scale")
    ] = None,
    sets: Set = None,
    data: DataFolder = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="where tables, figures and the page go")] = Path(
        "results"
    ),
    runs: Annotated[
        Path | None, typer.Option("--runs", help="where runs are kept and found again", show_default="OUT/runs")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only list the runs, with an estimate of the time")
    ] = False,
) -> None:
    """Reproduce the paper's tables and figures, its own numbers beside ours, with a verdict for every claim.

    Runs are shared between targets and found again by their configuration; the same command goes on where it was
    interrupted. What cannot be made (a data set is missing, say) is named at the end and costs itself only.
    """
    with errors_for_people():
        study = Study(
            full=full,
            rounds=rounds,
            seeds=_numbers(seeds),
            data=None if data is None else str(data),
            sets=settings(sets or []),
        )
        chosen = choose(targets)
        cache = Runs(runs or folder / "runs", _progress)
        if dry_run:
            out.print(_plan_table(chosen, study, cache))
            return
        try:
            failures = run_targets(chosen, study, folder, cache, _say)
        except KeyboardInterrupt:
            err.print("interrupted; what is done is saved. The same command goes on with it.")
            raise typer.Exit(130) from None
    made = [
        target.name
        for target in chosen
        if target.name not in failures and any(f"{target.name} {part}" not in failures for part in target.parts)
    ]
    if made:
        out.print(f"made {', '.join(made)}; see {folder / PAGE}, {folder / 'README.md'}", soft_wrap=True)
    for what, why in failures.items():
        err.print(f"[bold red]failed:[/] {what}: ", end="", soft_wrap=True)
        err.print(why, soft_wrap=True, markup=False)
    if failures:
        raise typer.Exit(1)


def _numbers(seeds: str | None) -> tuple[int, ...] | None:
    try:
        return None if seeds is None else tuple(int(seed) for seed in seeds.split(","))
    except ValueError:
        raise ValueError(f"--seeds must be whole numbers separated by commas, but got {seeds!r}") from None


def _say(text: str) -> None:
    err.print(text, soft_wrap=True, markup=False)


def _progress(name: str) -> list[Callback]:
    err.print(f"  {name}", highlight=False)
    return [ProgressBar(err)]


def _plan_table(targets: list[Target], study: Study, runs: Runs) -> Table:
    """The runs with their state, and the time they will take."""
    table = Table("run", "for", "rounds", "state", "minutes", box=None, padding=(0, 2))
    total = 0.0
    for run in planned(targets, study, runs):
        state = "finished" if run.seconds == 0 else f"{run.done} rounds done" if run.done else "new"
        table.add_row(run.name, ", ".join(run.targets), str(run.rounds), state, f"{run.seconds / 60:.1f}")
        total += run.seconds
    table.caption = f"about {total / 60:.0f} minutes in all"
    return table
