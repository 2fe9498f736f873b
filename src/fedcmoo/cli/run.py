"""`fedcmoo run`, `fedcmoo resume` and `fedcmoo report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcmoo.cli.configured import Options, given, with_options
from fedcmoo.cli.options import AsJson, err, errors_for_people, out, show
from fedcmoo.settings import SettingsError, name_of

if TYPE_CHECKING:
    from fedcmoo.callbacks import Callback
    from fedcmoo.config import RunConfig


@with_options("problem", "method", "rounds", "seed", "engine", "config", "sets", "small", "data")
def run(
    options: Options,
    clients_per_round: Annotated[int | None, typer.Option(help="the cohort's size")] = None,
    client_lr: Annotated[float | None, typer.Option(help="the clients' learning rate")] = None,
    server_lr: Annotated[float | None, typer.Option(help="the server's learning rate")] = None,
    local_steps: Annotated[int | None, typer.Option(help="local steps a round")] = None,
    batch_size: Annotated[int | None, typer.Option(help="samples in a client's batch")] = None,
    gram: Annotated[str | None, typer.Option(help="how the server learns the Gram matrix (see: fedcmoo list)")] = None,
    weights: Annotated[str | None, typer.Option(help="the weighting rule (see: fedcmoo list)")] = None,
    upload: Annotated[
        float | None, typer.Option(help="the whole upload of a client and round, in multiples of d numbers")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="bound on what one client contributes")] = None,
    robust: Annotated[
        str | None, typer.Option(help="a mean that few hostile clients cannot move far: trimmed-mean, geometric-median")
    ] = None,
    privacy: Annotated[
        float | None, typer.Option(metavar="EPSILON", help="differential privacy with this budget (docs/privacy.md)")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="secure aggregation: the server learns sums only (docs/privacy.md)")
    ] = False,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="the run's folder", show_default="runs/…")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="also write TensorBoard event files")] = False,
    as_json: AsJson = False,
) -> None:
    """Train one method on one problem: with no argument, FedCMOO on two handwritten digits.

    The folder holds config.toml (run it again with --config), history.jsonl, curves.png, model.safetensors and a
    checkpoint (continue with: fedcmoo resume FOLDER).
    """
    from fedcmoo.cli.resolving import new_folder, short_name, within
    from fedcmoo.methods import METHODS

    with errors_for_people():
        over = given(
            clients_per_round=clients_per_round,
            clip=clip,
            robust=robust,
            privacy=None if privacy is None else {"name": "differential", "epsilon": privacy},
            secure="masked" if secure else None,
        )
        over["method"] = given(
            client_lr=client_lr,
            server_lr=server_lr,
            local_steps=local_steps,
            batch_size=batch_size,
            gram=gram,
            weights=weights,
        )
        resolved = within(options.resolve(over=over), upload)
        name = f"{short_name(resolved)}-{name_of(resolved.method, METHODS)}-seed{resolved.seed}"
        train(resolved, new_folder(folder, name), resume=False, as_json=as_json, tensorboard=tensorboard)


def resume(
    folder: Annotated[Path, typer.Argument(help="the folder of an interrupted run")],
    rounds: Annotated[
        int | None, typer.Option(help="continue up to this many rounds", show_default="the run's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue an interrupted run, bit for bit as if it had never stopped.

    With --rounds, a finished run can be extended.
    """
    from fedcmoo.config import saved
    from fedcmoo.pareto.sweep import SETTINGS as SWEEP

    with errors_for_people():
        if not folder.is_dir():
            raise SettingsError(f"a run's folder must be given, but there is no folder {folder}")
        if (folder / SWEEP).exists():
            raise SettingsError(f"{folder} holds a sweep: run its `fedcmoo pareto` command again to continue")
        if not (folder / "config.toml").exists():
            raise SettingsError(f"a run's folder has a config.toml, but {folder} has none")
        config = saved(folder)
        config = replace(config, rounds=config.rounds if rounds is None else rounds)
        train(config, folder, resume=True, as_json=as_json)


def train(config: RunConfig, folder: Path, resume: bool, as_json: bool, tensorboard: bool = False) -> None:
    """Run a configuration with a progress bar, and print the result."""
    from fedcmoo.callbacks import ProgressBar, TensorBoard

    callbacks: list[Callback] = [ProgressBar(err), *([TensorBoard(folder)] if tensorboard else [])]
    with errors_for_people(f"Continue with: fedcmoo resume {folder}"):
        result = config.run(folder, callbacks, resume=resume)
    files = f"in {folder}: config.toml, history.jsonl, curves.png, model.safetensors"
    show(as_json, result.summary() | {"folder": str(folder)}, result.table(), files)


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, comparisons or sweeps, or folders that hold such folders")
    ],
    page: Annotated[Path, typer.Option("--out", "-o", help="the page")] = Path("report.html"),
) -> None:
    """Make one interactive page from any runs; it works without network."""
    from fedcmoo.overview import report as write_report

    with errors_for_people():
        write_report(runs, page)
    out.print(f"written: {page}", soft_wrap=True)
