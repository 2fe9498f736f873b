"""`fedcmoo reproduce`: the tables and figures of the paper."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AGAIN, Jobs, err, errors_for_people, make_missing, out, progress

if TYPE_CHECKING:
    from fedcmoo.reproduce.command import PlannedRun
    from fedcmoo.reproduce.study import Study

WIDE = 80
"""Terminals with fewer columns do not show a run's targets and rounds."""


@with_options("sets", "data")
def reproduce(
    options: Options,
    targets: Annotated[
        list[str],
        typer.Argument(
            help="all, or some of table1, curves, drift, qm9, preferences, table2, gram, one-way, minimum-weight, "
            "radial, delta-m, local-progress, rate",
            metavar="TARGET...",
        ),
    ],
    full: Annotated[
        bool,
        typer.Option(
            "--full/--small", help="the paper's settings and 500 rounds, or a scale that two cores finish in minutes"
        ),
    ] = False,
    rounds: Annotated[
        list[str] | None,
        typer.Option(
            help="rounds of every run, such as 200; or of a problem's, such as qm9=50", show_default="preset's"
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(help="such as 0,1,2; or a problem's, such as qm9=0", show_default="0; at full scale 0,1,2"),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="for tables, figures and the page")] = Path("results"),
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            help="where runs are made; what tables need of them is copied to OUT/runs, and found again there",
            show_default="OUT/runs",
        ),
    ] = None,
    jobs: Jobs = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="make only the runs whose names contain this text, such as 'multimnist FedCMOO, seed 1', and no "
            "tables; may be repeated. With --dry-run, list them",
            metavar="TEXT",
        ),
    ] = None,
    finished_only: Annotated[
        bool,
        typer.Option(
            "--finished-only", help="train nothing: show the runs that are there, and name the others as not measured"
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only list the runs, with the time they will take")
    ] = False,
) -> None:
    """Reproduce the paper's tables and figures, its own numbers beside ours, with a verdict for every claim.

    Runs are shared between targets and found again by their configuration; run the same command again to continue.
    Anything that cannot be made, for example because a data set is missing, is listed at the end.
    """
    with errors_for_people(AGAIN):
        from fedcmoo.reproduce import command  # takes a second or two, with matplotlib
        from fedcmoo.runs import Runs

        if only and finished_only:
            raise ValueError("--only makes runs and --finished-only makes tables without any, but got both")
        study = _study(full, rounds, seeds, options)
        chosen = command.choose(targets)
        published = folder / "runs"
        cache = Runs(runs or published, progress, finished_only, published)
        needed = command.needed_runs(chosen, study, only)
        if dry_run:
            out.print(_plan_table(command.planned(chosen, study, cache, only), by_seed=bool(only)))
            return
        make_missing(cache, command.with_data(needed), jobs)
        failures = command.make_each(needed, cache) if only else command.reproduce(chosen, study, folder, cache, _say)
        if runs is not None:
            cache.publish(published)
    written = (
        [cache.folder] if only else [file for file in (folder / "report.html", folder / "README.md") if file.exists()]
    )
    out.print(f"see {' and '.join(map(str, written)) or folder}", soft_wrap=True)
    for what, why in failures.items():
        err.print(f"[bold red]failed:[/] {what}: ", end="", soft_wrap=True)
        _say(why)
    if failures:
        raise typer.Exit(1)


def _study(full: bool, rounds: list[str] | None, seeds: list[str] | None, options: Options) -> Study:
    """The scale given by the options."""
    from fedcmoo.cli.resolving import settings
    from fedcmoo.reproduce.study import Study

    every_rounds, rounds_of = _by_problem("--rounds", rounds)
    every_seeds, seeds_of = _by_problem("--seeds", seeds)
    for numbers in (every_rounds or (), *rounds_of.values()):
        if len(numbers) > 1:
            raise ValueError(f"--rounds must be one number, but got {', '.join(map(str, numbers))}")
    return Study(
        full=full,
        rounds=every_rounds[0] if every_rounds else None,
        seeds=every_seeds,
        rounds_of={problem: numbers[0] for problem, numbers in rounds_of.items()},
        seeds_of=seeds_of,
        data=options.given().get("data"),
        sets=settings(options.sets or []),
    )


def _by_problem(option: str, texts: list[str] | None) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Parse texts such as 0,1,2 and qm9=0 into the numbers for all problems and those for single ones."""
    everywhere, by_problem = None, {}
    for text in texts or []:
        problem, equals, numbers = text.rpartition("=")
        try:
            found = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            raise ValueError(f"{option} must be whole numbers separated by commas, but got {text!r}") from None
        if equals:
            by_problem[problem] = found
        else:
            everywhere = found
    return everywhere, by_problem


def _say(text: str) -> None:
    err.print(text, soft_wrap=True, markup=False)


def _plan_table(runs: list[PlannedRun], by_seed: bool = False) -> Table:
    """A table of the runs with their state and estimated time, shortened in a narrow terminal. Seeds are combined
    unless `by_seed`."""
    from fedcmoo.report.table import count

    wide = out.width >= WIDE
    table = Table("run", *(["for", "rounds"] if wide else []), "state", "time", box=None, padding=(0, 2 if wide else 1))
    for column in table.columns:
        column.overflow = "fold"
    for key, same in groupby(runs, lambda r: (r.name, r.targets, r.rounds, _state(r), r.seed if by_seed else None)):
        name, targets, rounds, state, _ = key
        seeds = list(same)
        label = f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(str(run.seed) for run in seeds)}"
        time = sum(run.seconds for run in seeds)
        about = [", ".join(targets), str(rounds)] if wide else []
        table.add_row(label, *about, escape(state), duration(time) if time else "")
    missing = list(dict.fromkeys(name for run in runs for name in run.missing))
    table.caption = f"about {duration(sum(run.seconds for run in runs))} in all, if nothing else is running"
    if missing:
        without = sum(bool(run.missing) for run in runs)
        table.caption += f", without the {count(without, 'run')} whose data are missing: see fedcmoo data get"
        table.caption += f" {' '.join(missing)}"
    return table


def _state(run: PlannedRun) -> str:
    from fedcmoo.report.table import count

    if run.impossible:
        return f"impossible: {run.impossible}"
    if run.missing:
        return f"no data: {', '.join(run.missing)}"
    return "finished" if run.seconds == 0 else f"{count(run.done, 'round')} done" if run.done else "new"


def duration(seconds: float) -> str:
    """A duration in a readable unit.

    >>> duration(5), duration(90), duration(9000), duration(900_000)
    ('5 seconds', '1.5 minutes', '2.5 hours', '10.4 days')
    """
    if seconds < 60:
        return f"{seconds:.0f} seconds"
    for unit, length in (("days", 86400), ("hours", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"
