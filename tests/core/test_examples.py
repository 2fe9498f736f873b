"""The examples in docs and docstrings run."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fedcmoo"
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstrings(path: Path) -> None:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_data.py"), run_name="__main__")
    table = capsys.readouterr().out
    assert all(name in table for name in ("Weight", "Waist", "Pulse"))


def test_unequal_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "clients.svg"
    monkeypatch.setattr("sys.argv", ["unequal_clients.py", "2", str(figure)])
    runpy.run_path(str(ROOT / "examples" / "unequal_clients.py"), run_name="__main__")
    assert "private last layer {'mean'" in capsys.readouterr().out
    assert figure.stat().st_size > 1000


@pytest.mark.skipif(not importlib.util.find_spec("torchjd"), reason="needs the extra torchjd")
def test_loss_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "scales.png"
    monkeypatch.setattr("sys.argv", ["loss_scales.py", "2", str(figure)])
    runpy.run_path(str(ROOT / "examples" / "loss_scales.py"), run_name="__main__")
    assert "upgrad" in capsys.readouterr().out
    assert figure.stat().st_size > 1000
