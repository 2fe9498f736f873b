"""Optional dependencies: imported where they are used, with an error that names the pip line."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """Something optional is not installed."""


def require(module: str, extra: str) -> Any:
    """Import an optional module, or say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs {error.name or module}, which is not installed: pip install 'fedcmoo[{extra}]'"
        ) from error
