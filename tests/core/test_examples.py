"""The examples in docs and docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import runpy
from pathlib import Path

import pytest

import fedcmoo

ROOT = Path(__file__).parents[2]
MODULES = [m.name for m in pkgutil.walk_packages(fedcmoo.__path__, "fedcmoo.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_data.py"), run_name="__main__")
    table = capsys.readouterr().out
    assert all(name in table for name in ("Weight", "Waist", "Pulse"))
