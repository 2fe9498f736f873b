"""Where the data folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcmoo.data.folder import data_folder


def test_explicit_beats_environment_beats_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCMOO_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "fedcmoo" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data_folder() == tmp_path / "xdg" / "fedcmoo" / "data"
    monkeypatch.setenv("FEDCMOO_DATA", "~/mine")
    assert data_folder() == tmp_path / "mine"
    assert data_folder(tmp_path / "given") == tmp_path / "given"
