"""Options, consoles and error output shared by all commands. Nothing here imports torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fedcmoo.failures import DivergedError
from fedcmoo.optional import MissingExtraError
from fedcmoo.settings import SettingsError

if TYPE_CHECKING:
    from fedcmoo.callbacks import Callback
    from fedcmoo.config import RunConfig
    from fedcmoo.runs import Runs

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

ProblemName = Annotated[
    str | None,
    typer.Argument(help="a ready-made problem (see: fedcmoo list), or MODULE:NAME of yours", show_default="two-digits"),
]
MethodName = Annotated[
    str | None, typer.Option("--method", "-m", help="the method (see: fedcmoo list)", show_default="fedcmoo")
]
Rounds = Annotated[int | None, typer.Option(help="the number of rounds", show_default="the problem's")]
Seed = Annotated[int | None, typer.Option(help="everything random derives from it", show_default="0")]
Seeds = Annotated[str, typer.Option(help="separated by commas")]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="a TOML file, such as a run's config.toml")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="the data folder (default: FEDCMOO_DATA)")]
EngineName = Annotated[
    str | None, typer.Option(help="where clients run (see: fedcmoo list)", show_default="by the machine")
]
Small = Annotated[bool, typer.Option("--small", help="the problem's small variant, for two CPU cores")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY=VALUE", help="any setting, such as problem.alpha=1 or method.local_steps=20"
    ),
]
KeptRuns = Annotated[
    Path | None,
    typer.Option("--runs", help="where runs are kept and found again by their settings", show_default="OUT"),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="the number of runs made at the same time, each on one core; with 1, one run after the other on all cores",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


AGAIN = "Run the same command again to continue."
"""The advice after Ctrl-C in commands that find their finished runs again."""


def progress(name: str) -> list[Callback]:
    """Print the name of a run; returns its progress bar."""
    from fedcmoo.callbacks import ProgressBar

    err.print(f"{name}:", soft_wrap=True, markup=False)
    return [ProgressBar(err)]


def make_missing(runs: Runs, configs: Mapping[str, RunConfig], jobs: int) -> None:
    """With several jobs, make the missing runs in parallel; else they are made when they are needed."""
    if jobs > 1 and not runs.only_finished:
        from fedcmoo.callbacks.progress import ProgressBars
        from fedcmoo.parallel_runs import make_in_parallel

        with ProgressBars(err) as bars:
            make_in_parallel(runs, configs, jobs, bars)


@contextmanager
def errors_for_people(after_interrupt: str | None = None) -> Iterator[None]:
    """Turn expected errors into one line on standard error, with the error's notes below it, and an exit code.

    With advice `after_interrupt`, Ctrl-C prints that finished rounds are saved, and the advice.
    """
    try:
        yield
    except KeyboardInterrupt:
        if after_interrupt is None:
            raise
        err.print(f"interrupted; what is done is saved. {after_interrupt}")
        raise typer.Exit(130) from None
    except (MissingExtraError, ValueError, OSError, DivergedError) as error:
        notes = [note for note in getattr(error, "__notes__", []) if "\n" not in note]  # not the traceback of a worker
        text = "\n".join([str(error), *notes])
        err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, SettingsError) else 1) from None


def name_diverged(diverged: Mapping[str, Mapping[int, str]]) -> None:
    """List the runs that a comparison left out, by label and seed, and exit with status 1 if there are any."""
    for label, seeds in diverged.items():
        for seed, why in seeds.items():
            err.print(f"{label}, seed {seed} diverged and is left out: {why}", soft_wrap=True, markup=False)
    if diverged:
        raise typer.Exit(1)


def print_json(value: Any) -> None:
    """Print JSON, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def show(as_json: bool, value: Any, *parts: Any) -> None:
    """Print a command's result: as JSON, or else its tables and texts."""
    if as_json:
        print_json(value)
        return
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, str))
