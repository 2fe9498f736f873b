"""`fedcmoo pareto`: a model for each of many preferences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AGAIN, AsJson, errors_for_people, progress, show
from fedcmoo.settings import SettingsError, read_toml, write_toml

if TYPE_CHECKING:
    from fedcmoo.callbacks import Callback
    from fedcmoo.config import RunConfig
    from fedcmoo.pareto import Front


@with_options("problem", "rounds", "seed", "engine", "config", "sets", "small", "data")
def pareto(
    options: Options,
    preferences: Annotated[
        str, typer.Option("--preferences", "-p", help="such as 1:2,1:1,2:1; or how many, evenly spread")
    ] = "5",
    single: Annotated[bool, typer.Option("--single", help="also train each objective alone: the least losses")] = False,
    fedavg: Annotated[bool, typer.Option("--fedavg", help="also run FedAvg on the average loss")] = False,
    pick: Annotated[
        str | None, typer.Option(metavar="RATIO", help="train nothing: the nearest model of a finished sweep")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="the sweep's folder", show_default="runs/pareto-PROBLEM")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model for each of many preferences: the front as a table and a figure, and the models.

    A preference 2:1 asks for a first loss half as large as the second. Run the same command again to continue an
    interrupted sweep, or with more rounds or preferences to extend it. Afterwards, --pick 2:1 prints which model is
    nearest to a preference.
    """
    from fedcmoo.cli.resolving import short_name

    with errors_for_people(AGAIN):
        resolved = options.resolve("fedcmoo-pref", sweep=True)
        folder = folder or Path("runs") / f"pareto-{short_name(resolved)}"
        if pick is not None:
            _pick(folder, pick, as_json)
            return
        front = _sweep(resolved, folder, preferences, single, fedavg)
        files = f"in {folder}: front.png, front.json and a folder with the model of each point"
        show(as_json, front.summary() | {"folder": str(folder)}, front.table(), files)


def _sweep(config: RunConfig, folder: Path, preferences: str, single: bool, fedavg: bool) -> Front:
    from fedcmoo.files import write_atomically
    from fedcmoo.methods import FedCMOOPref
    from fedcmoo.pareto import parse_ratio, sweep

    if not isinstance(config.method, FedCMOOPref):
        raise SettingsError(f"a sweep needs method fedcmoo-pref, but got {type(config.method).__name__}")
    file = folder / "sweep.toml"
    _check_same(config, file)
    ready = config.build()
    wanted = int(preferences) if preferences.isdigit() else [parse_ratio(r, ready.M) for r in preferences.split(",")]

    def callbacks(label: str) -> list[Callback]:
        write_atomically(file, write_toml(config.to_table()).encode())  # the folder exists and is this sweep's
        return progress(label)

    return sweep(
        ready,
        wanted,
        config.rounds,
        folder=folder,
        method=config.method,
        single=single,
        fedavg=fedavg,
        callbacks=callbacks,
        **config.options,
    )


def _check_same(config: RunConfig, file: Path) -> None:
    """Raise if the folder has settings of another sweep; rounds and evaluation interval may differ."""
    from fedcmoo.config import RunConfig

    if file.exists():
        before = replace(
            RunConfig.from_table(read_toml(file)), rounds=config.rounds, evaluate_every=config.evaluate_every
        )
        if not before.computes_the_same_as(config):
            raise SettingsError(f"{file.parent} already holds a sweep with other settings: choose another --out")


def _pick(folder: Path, ratio: str, as_json: bool) -> None:
    from fedcmoo.pareto import Front, parse_ratio

    front = Front.load(folder)
    point = front.pick(parse_ratio(ratio, len(front.objectives)))
    model = str(point.folder / "model.safetensors")
    scores = [
        f"  {name}: " + ", ".join(f"{metric} {value:.4f}" for metric, value in values.items())
        for name, values in point.scores.items()
    ]
    found = {"preference": list(point.preference), "scores": point.scores, "model": model}
    show(as_json, found, f"nearest to {ratio} is the point of preference {point.label}:", *scores, f"  {model}")
