"""What is made once is read again, unless what it was made of has changed."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcmoo.data.cache import Arrays, cached
from fedcmoo.files import lock_folder


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"images": np.arange(6, dtype=np.uint8), "targets": np.arange(2)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"content")
    return path


def test_made_once(tmp_path: Path, source: Path) -> None:
    make = Maker()
    for _ in range(2):
        arrays = cached(tmp_path, "thing", {"seed": 1}, [source], make)
        np.testing.assert_array_equal(arrays["images"], np.arange(6))
        torch.from_numpy(arrays["images"])[0] = 9  # writable, and no change of what is on disk
    assert make.calls == 1
    assert not list((tmp_path / "composed").glob(".part*"))


def test_made_anew_for_other_settings_or_sources(tmp_path: Path, source: Path) -> None:
    make = Maker()
    cached(tmp_path, "thing", {"seed": 1}, [source], make)
    cached(tmp_path, "thing", {"seed": 2}, [source], make)
    source.write_bytes(b"changed")
    cached(tmp_path, "thing", {"seed": 1}, [source], make)
    assert make.calls == 3


def test_unwritable_folder_is_no_error(tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "composed").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        arrays = cached(tmp_path, "thing", {}, [source], Maker())
    assert len(arrays["targets"]) == 2
    assert "made again each time" in caplog.text


def test_folders_of_killed_processes_are_deleted(tmp_path: Path, source: Path) -> None:
    abandoned, in_use = (tmp_path / "composed" / f".part-{name}" for name in ("abandoned", "in-use"))
    for folder in (abandoned, in_use):
        folder.mkdir(parents=True)
        (folder / "x.npy").write_bytes(bytes(1000))
    with lock_folder(in_use):
        for folder in (abandoned, in_use):
            os.utime(folder, (0, 0))  # long ago
        cached(tmp_path, "squares", {}, [source], lambda: {"x": np.arange(3)})
    assert in_use.exists()
    assert not abandoned.exists()


def test_several_at_once(tmp_path: Path, source: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: cached(tmp_path, "thing", {}, [source], Maker()), range(8)))
    assert all(len(arrays["images"]) == 6 for arrays in results)
    assert len(list((tmp_path / "composed").iterdir())) == 1
