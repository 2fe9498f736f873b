"""Damaged data files: each gives one error that names the file, whatever is wrong with it."""

from __future__ import annotations

import pickle
import random
import resource
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedcmoo.config import RunConfig
from fedcmoo.data.cache import cached
from fedcmoo.data.celeba import load_celeba
from fedcmoo.data.cifar import PYTHON, load_cifar10
from fedcmoo.data.qm9 import _read
from fedcmoo.files import DamagedError
from fedcmoo.settings import SettingsError, from_table, read_toml
from tests.data import test_celeba, test_cifar, test_qm9


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The content with flipped bits, a cut, or some of it written twice."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 4, 30])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    where = draw.randrange(len(changed))
    kind = draw.randrange(3)
    return bytes(changed if kind == 0 else changed[:where] if kind == 1 else changed + changed[where:])


@pytest.mark.parametrize("form", ["python", "python archive", "binary archive"])
def test_damaged_cifar(form: str, tmp_path: Path) -> None:
    """Read as if nothing were wrong (a pixel is a pixel), or refused by an error that names the file."""
    test_cifar.write(tmp_path, form)
    (source,) = tmp_path.iterdir()
    file = source / "test_batch" if source.is_dir() else source
    whole, draw = file.read_bytes(), random.Random(0)
    errors: list[str] = []
    for _ in range(400):
        file.write_bytes(damaged(whole, draw))
        try:
            images, labels = load_cifar10(source, train=False)
        except DamagedError as error:
            errors.append(str(error))
        else:
            assert images.dtype == np.uint8
            assert images.shape[1:] == (3, 32, 32)
            assert labels.max() <= 9
    assert len(errors) > 100
    assert all(file.name in error for error in errors)


def nested(depth: int) -> list[object]:
    labels: list[object] = [1] * 10
    for _ in range(depth):
        labels = [labels] * 10
    return labels


@pytest.mark.parametrize("labels", [nested(12), [1.5] * 10, ["a"] * 10, [10**30] * 10])
def test_cifar_labels_are_whole_numbers(labels: list[object], tmp_path: Path) -> None:
    """Ten nested lists stand for 10^13 numbers; they are refused before anything is made of them."""
    (tmp_path / PYTHON).mkdir()
    content = {b"data": np.zeros((10, 3072), np.uint8), b"labels": labels}
    (tmp_path / PYTHON / "test_batch").write_bytes(pickle.dumps(content, protocol=3))
    with pytest.raises(DamagedError, match=r"test_batch .*(whole numbers as labels|too large)"):
        load_cifar10(tmp_path / PYTHON, train=False)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xf0\xff\xff\x7f.",  # place 2^31 of the memo: 16 GB of pointers
        b"\x80\x05\x96" + (2**36).to_bytes(8, "little") + b".",  # a byte array of 64 GB
    ],
)
def test_a_pickle_cannot_ask_for_more_memory_than_it_has(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PYTHON).mkdir()
    (tmp_path / PYTHON / "test_batch").write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedError, match="test_batch"):
        load_cifar10(tmp_path / PYTHON, train=False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_pickle_can_only_make_bytes(tmp_path: Path) -> None:
    """The state of a numpy dtype could turn the bytes of an array into records, or into sub-arrays of any size."""
    test_cifar.write(tmp_path, "python folder")
    file = tmp_path / PYTHON / "test_batch"
    plain, whole = b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb", file.read_bytes()
    expected = load_cifar10(tmp_path / PYTHON, train=False)[0]
    inner = b"cnumpy\ndtype\n(U\2u1K\0K\1tR"
    for state in (b"(" + inner + b"J\0\xca\x9a;\x85tNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb", plain[:-3] + b"\x7ftb"):
        assert plain in whole
        file.write_bytes(whole.replace(plain, state))
        images, _ = load_cifar10(tmp_path / PYTHON, train=False)
        assert images.dtype == np.uint8
        assert np.array_equal(images, expected)


def test_an_archive_cannot_ask_for_any_amount_of_memory(tmp_path: Path) -> None:
    test_celeba.write(tmp_path, zipped=True, csv=True)
    path = tmp_path / "celeba" / "img_align_celeba.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in test_celeba.FILES:
            archive.writestr(name, bytes(20_000_000))  # twenty kilobytes, compressed
    with pytest.raises(DamagedError, match=r"000001\.jpg .*zip must have at most 16,777,216 bytes"):
        load_celeba(tmp_path)


def test_damaged_celeba(tmp_path: Path) -> None:
    test_celeba.write(tmp_path, zipped=True, csv=True)
    draw = random.Random(0)
    for file in sorted((tmp_path / "celeba").iterdir()):
        whole, errors = file.read_bytes(), list[str]()
        for _ in range(15):
            file.write_bytes(damaged(whole, draw))
            try:
                faces = load_celeba(tmp_path)
            except ValueError as error:
                errors.append(str(error))
            else:
                assert faces["test"].images.dtype == np.uint8
        file.write_bytes(whole)
        assert errors
        assert all(file.name in error or ".jpg" in error for error in errors)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("SMILES", "not a molecule"),
        ("XYZ_Ang", "[[1.0]]"),
        ("Elements", "['C', 'Xx']"),
        ("ZPVE_au", "?"),
        ("HOMO_au", ""),
        ("HOMO_au", "nan"),
        ("LUMO_au", "1e999"),
    ],
)
def test_damaged_qm9(column: str, value: str, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    row = {**test_qm9.METHANE, column: value}
    path = tmp_path / "part.csv"
    path.write_text(",".join(row) + "\n" + ",".join(f'"{cell}"' for cell in row.values()) + "\n")
    with pytest.raises(DamagedError, match=r"row 1 of .*part\.csv"):
        _read([path])


def test_a_damaged_cache_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")

    def load() -> np.ndarray:
        return cached(tmp_path, "squares", {"n": 9}, [source], lambda: {"x": np.arange(9) ** 2})["x"]

    load()
    (file,) = tmp_path.glob("composed/*/x.npy")
    for wrong in (file.read_bytes()[:-9], b"", b"\x93NUMPY garbage"):
        file.write_bytes(wrong)
        assert load().tolist() == [n * n for n in range(9)]
    file.unlink()
    assert load().tolist() == [n * n for n in range(9)]
    assert caplog.text.count("is made again") == 4


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 10_000, "rounds = " + "9" * 5_000, "a = 1\na = 2", "\x00", "[" * 5_000, "a." * 2_000 + "b = 1\n[["],
)
def test_absurd_toml(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"run\.toml is not valid TOML"):
        read_toml(tmp_path / "run.toml")


@pytest.mark.parametrize("value", ["9" * 30, "-" + "9" * 30, "0x" + "f" * 5_000], ids=len)
def test_absurd_whole_numbers(value: str) -> None:
    with pytest.raises(SettingsError, match="seed must be a whole number of at most 64 bits"):
        from_table(RunConfig, tomllib.loads(f"seed = {value}"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400), -1, 0, True, "x", [], {}, [[[]]]])
@pytest.mark.parametrize("key", ["client_lr", "server_lr"])
def test_absurd_values(key: str, value: object) -> None:
    with pytest.raises(SettingsError):
        from_table(RunConfig, {"method": {"name": "fedcmoo", key: value}})
