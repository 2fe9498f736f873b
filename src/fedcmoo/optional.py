"""Optional dependencies: imported where they are used, with an error that gives the pip command."""

import importlib
from importlib import metadata
from typing import Any


class MissingExtraError(ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str) -> Any:
    """Import an optional module, or raise an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(error.name or module, extra) from error


def missing(module: str, extra: str) -> MissingExtraError:
    """The error that says what to install."""
    return MissingExtraError(f"this needs {module}, which is not installed: {pip_line(extra)}")


def pip_line(extra: str) -> str:
    """The command that installs the packages of an extra; it works however fedcmoo itself was installed.

    >>> pip_line("pareto")
    "pip install 'moocore>=0.1.7'"
    """
    try:
        lines = metadata.requires("fedcmoo") or []
    except metadata.PackageNotFoundError:  # a clone that is not installed
        lines = []
    wanted = [line.split(";")[0].strip() for line in lines if f"extra == '{extra}'" in line.replace('"', "'")]
    return "pip install " + " ".join(f"'{requirement}'" for requirement in wanted or [f".[{extra}]"])
