"""`fedcmoo list`: everything that has a name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from fedcmoo.cli.common import out
from fedcmoo.compression import COMPRESSORS
from fedcmoo.engines import ENGINES
from fedcmoo.experiments import PROBLEMS
from fedcmoo.gram import GRAMS
from fedcmoo.methods import METHODS
from fedcmoo.optimizers import OPTIMIZERS
from fedcmoo.weights import WEIGHTS

REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "problems": PROBLEMS,
    "methods": METHODS,
    "gram": GRAMS,
    "compressors": COMPRESSORS,
    "weights": WEIGHTS,
    "optimizers": OPTIMIZERS,
    "engines": ENGINES,
}


def list_names() -> None:
    """List problems, methods, Gram estimators, compressors, weighting rules, optimizers and engines."""
    for kind, registry in REGISTRIES.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, entry in registry.items():
            table.add_row(name, about(entry))
        out.print(table)
        out.print()


def about(entry: Any) -> str:
    """One line on a class: its title, or the first sentence of its docstring."""
    title = getattr(entry, "title", None)
    if isinstance(title, str):
        return title
    return " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())
