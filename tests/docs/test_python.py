"""Every Python block in README and docs runs as it stands, in the order of its page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcmoo.optional import MissingExtraError
from tests.docs.pages import PAGES, blocks

EXTRAS = {"torchjd", "flwr", "wandb", "mlflow", "tensorboard", "ray"}
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, current and importable; what was imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_blocks(page: str, folder: Path) -> None:
    """Blocks share a folder but no names. One that starts with `# name.py` is saved there, too. Runs are shortened."""
    python = [block for block in blocks(page) if block.language == "python"]
    assert python
    for block in python:
        if name := re.match(r"# (\w+\.py)\n", block.text):
            (folder / name[1]).write_text(block.text)
        code = compile("\n" * block.line + re.sub(r"\brounds=\d+", "rounds=2", block.text), page, "exec")
        try:
            exec(code, {"__name__": "__main__"})
        except MissingExtraError as error:
            pytest.skip(str(error))
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            pytest.skip(f"needs {error.name}")
