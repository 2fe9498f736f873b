"""`fedcmoo list`: everything that has a name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedcmoo.cli.common import errors_for_people, out
from fedcmoo.compression import COMPRESSORS
from fedcmoo.config import variants
from fedcmoo.drift import DRIFT
from fedcmoo.engines import ENGINES
from fedcmoo.experiments import PROBLEMS
from fedcmoo.gram import GRAMS
from fedcmoo.methods import METHODS
from fedcmoo.optimizers import OPTIMIZERS
from fedcmoo.settings import SettingsError, defaults, suggestion
from fedcmoo.weights import WEIGHTS

REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "problems": PROBLEMS,
    "methods": METHODS,
    "gram": GRAMS,
    "compressors": COMPRESSORS,
    "weights": WEIGHTS,
    "optimizers": OPTIMIZERS,
    "drift": DRIFT,
    "engines": ENGINES,
}


def list_names(
    name: Annotated[str | None, typer.Argument(help="one of them: show what it is, and its settings")] = None,
) -> None:
    """List problems, methods, Gram estimators, compressors, weighting rules, optimizers, drift corrections and engines.

    With a NAME, such as sketch: what it is, and the settings that --set can change, with their defaults. (A problem's
    preset may have others; a run's config.toml has those that it was made with.)
    """
    with errors_for_people():
        if name is not None:
            describe(name)
            return
    for kind, registry in REGISTRIES.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, entry in registry.items():
            table.add_row(name, about(entry))
        for name, title in variants().items() if kind == "problems" else ():
            table.add_row(name, title)
        out.print(table)
        out.print()


def describe(name: str) -> None:
    """Print everything of this name: its docstring, and its settings."""
    found = {kind: registry[name] for kind, registry in REGISTRIES.items() if name in registry}
    titles = variants()
    if name in titles:
        out.print(f"{name} (problems)", style="bold")
        out.print(titles[name], markup=False, highlight=False)
        return
    if not found:
        known = [*(name for registry in REGISTRIES.values() for name in registry), *titles]
        raise SettingsError(f"{name!r} is not known{suggestion(name, known)}")
    for kind, entry in found.items():
        out.print(f"{name} ({kind})", style="bold")
        out.print(inspect.getdoc(entry) or "", markup=False, highlight=False)
        table = Table(title="settings", title_justify="left", show_header=False, box=None, padding=(0, 2))
        for setting, default in defaults(entry).items():
            table.add_row(setting, escape(str(default)))
        out.print(table)


def about(entry: Any) -> str:
    """One line on a class: its title, or the first sentence of its docstring."""
    title = getattr(entry, "title", None)
    if isinstance(title, str):
        return title
    return " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())
