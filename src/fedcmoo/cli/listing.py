"""`fedcmoo list`: everything that has a name."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedcmoo.cli.options import AsJson, errors_for_people, out, print_json, show
from fedcmoo.settings import SettingsError, defaults, suggestion


def list_names(
    name: Annotated[str | None, typer.Argument(help="a group, such as weights, or one name, such as sketch")] = None,
    as_json: AsJson = False,
) -> None:
    """List everything that has a name: problems, methods, Gram estimators, weighting rules, engines and more.

    With a name, describe it and list the settings that --set can change, with their defaults. (A problem's preset may
    have other values; a run's config.toml has those that were used.)
    """
    with errors_for_people():
        groups = registries()
        if name is None or name in groups:
            _list({kind: entries for kind, entries in groups.items() if name in (None, kind)}, as_json)
        else:
            _describe(name, groups, as_json)


Groups = Mapping[str, Mapping[str, Any]]
"""Named entries by group: a class of settings, or the title of a problem's variant."""


def registries() -> Groups:
    """Everything that has a name, by group."""
    from fedcmoo.compression import COMPRESSORS
    from fedcmoo.config import variants
    from fedcmoo.drift import DRIFT
    from fedcmoo.engines import ENGINES
    from fedcmoo.experiments import PROBLEMS
    from fedcmoo.gram import GRAMS
    from fedcmoo.methods import METHODS
    from fedcmoo.optimizers import OPTIMIZERS
    from fedcmoo.stages import STAGES
    from fedcmoo.weights import WEIGHTS
    from fedcmoo.weights.scalarization import SCALARIZATIONS

    return {
        "problems": {**PROBLEMS, **variants()},
        "methods": METHODS,
        "gram": GRAMS,
        "compressors": COMPRESSORS,
        "weights": WEIGHTS,
        "scalarizations": SCALARIZATIONS,
        "optimizers": OPTIMIZERS,
        "drift": DRIFT,
        "stages": STAGES,
        "engines": ENGINES,
    }


def _list(groups: Groups, as_json: bool) -> None:
    about = {kind: {name: _about(entry) for name, entry in entries.items()} for kind, entries in groups.items()}
    show(as_json, about, *(part for kind, texts in about.items() for part in (_table(kind, texts), "")))


def _describe(name: str, groups: Groups, as_json: bool) -> None:
    """Print the docstring and the settings of every entry with this name."""
    found = {kind: entries[name] for kind, entries in groups.items() if name in entries}
    if not found:
        known = [*groups, *(name for entries in groups.values() for name in entries)]
        raise SettingsError(f"{name!r} is not known{suggestion(name, known)}")
    if as_json:
        print_json({kind: {"about": _about(entry), "settings": _settings(entry)} for kind, entry in found.items()})
        return
    for kind, entry in found.items():
        out.print(f"{name} ({kind})", style="bold")
        out.print(entry if isinstance(entry, str) else inspect.getdoc(entry) or "", markup=False, highlight=False)
        if _settings(entry):
            out.print(_table("settings", _settings(entry)))


def _table(title: str, texts: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, text in texts.items():
        table.add_row(name, escape(text))
    return table


def _settings(entry: Any) -> dict[str, str]:
    return {} if isinstance(entry, str) else {key: str(value) for key, value in defaults(entry).items()}


def _about(entry: Any) -> str:
    """A one-line description of a class: its title, or the first paragraph of its docstring."""
    title = entry if isinstance(entry, str) else getattr(entry, "title", None)
    if isinstance(title, str):
        return title
    return " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())
