"""CIFAR-10 is read alike from all four official forms, and a pickle that names anything but numpy is refused."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcmoo.data.cifar import BINARY, PYTHON, cifar10_source, load_cifar10
from fedcmoo.data.folder import MissingDataError
from fedcmoo.files import DamagedError

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
PER_BATCH = 3


def batch(name: str) -> tuple[NDArray[np.uint8], list[int]]:
    rng = np.random.default_rng(BATCHES.index(name))
    return rng.integers(256, size=(PER_BATCH, 3072), dtype=np.uint8), rng.integers(10, size=PER_BATCH).tolist()


def as_binary(name: str) -> bytes:
    data, labels = batch(name)
    return b"".join(bytes([label]) + row.tobytes() for row, label in zip(data, labels, strict=True))


def as_python2_pickle(name: str) -> bytes:
    """The opcodes that Python 2 wrote into the official files: byte strings, and numpy 1's module names."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    data, labels = batch(name)
    minus_one = b"J\xff\xff\xff\xff"
    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + b"K\0K\1tR(K\3" + string(b"|") + b"NNN" + 2 * minus_one + b"K\0tb"
    shape = b"(K" + bytes([PER_BATCH]) + b"M" + struct.pack("<H", 3072) + b"t"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0t" + string(b"b") + b"tR"
    array += b"(K\1" + shape + dtype + b"\x89" + string(data.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\2}(" + string(b"data") + array + string(b"labels") + numbers + b"u."


def write(folder: Path, form: str) -> None:
    binary, packed = form.startswith("binary"), form.endswith("archive")
    inner = BINARY if binary else PYTHON
    files = {name: as_python2_pickle(name) for name in BATCHES}
    if binary:
        files = {f"{name}.bin": as_binary(name) for name in BATCHES}
    if not packed:
        (folder / inner).mkdir()
        for name, content in files.items():
            (folder / inner / name).write_bytes(content)
        return
    with tarfile.open(folder / f"cifar-10-{'binary' if binary else 'python'}.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{inner}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("form", ["binary folder", "binary archive", "python folder", "python archive"])
def test_all_forms_agree(tmp_path: Path, form: str) -> None:
    write(tmp_path, form)
    for train, names in ((True, BATCHES[:5]), (False, BATCHES[5:])):
        images, labels = load_cifar10(cifar10_source(tmp_path), train)
        np.testing.assert_array_equal(images, np.concatenate([batch(n)[0] for n in names]).reshape(-1, 3, 32, 32))
        np.testing.assert_array_equal(labels, np.concatenate([batch(n)[1] for n in names]))


def test_reads_pickles_of_this_numpy(tmp_path: Path) -> None:
    (tmp_path / PYTHON).mkdir()
    data, labels = batch("test_batch")
    (tmp_path / PYTHON / "test_batch").write_bytes(pickle.dumps({"data": data, "labels": labels}, protocol=4))
    images, _ = load_cifar10(tmp_path / PYTHON, train=False)
    np.testing.assert_array_equal(images.reshape(PER_BATCH, -1), data)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm-done",)


@pytest.mark.parametrize("content", [Evil(), {"data": np.array([Evil()]), "labels": [1]}, np.float64(1.0)])
def test_refuses_other_pickles(tmp_path: Path, content: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / PYTHON).mkdir()
    (tmp_path / PYTHON / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(DamagedError, match=r"test_batch.*(numpy arrays only|arrays of bytes)"):
        load_cifar10(tmp_path / PYTHON, train=False)
    assert not (tmp_path / "harm-done").exists()


def test_refuses_damaged_files(tmp_path: Path) -> None:
    write(tmp_path, "binary folder")
    target = tmp_path / BINARY / "test_batch.bin"
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(ValueError, match="whole number of 3073-byte rows"):
        load_cifar10(tmp_path / BINARY, train=False)
    target.write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match=r"labels in 0\.\.9"):
        load_cifar10(tmp_path / BINARY, train=False)
    target.unlink()
    with pytest.raises(ValueError, match=r"must hold test_batch\.bin"):
        load_cifar10(tmp_path / BINARY, train=False)


def test_refuses_cut_archive(tmp_path: Path) -> None:
    write(tmp_path, "python archive")
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(archive.read_bytes()[:20_000])
    with pytest.raises(ValueError, match=r"python\.tar\.gz cannot be read"):
        load_cifar10(archive, train=False)


def test_missing_says_how(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="fedcmoo data get cifar10"):
        cifar10_source(tmp_path)
