"""IDX files are read as they are specified, and damaged ones are refused with a reason."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from fedcmoo.data.folder import MissingDataError
from fedcmoo.data.idx import idx_files, load_idx_pair, read_idx

VALUES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx_bytes(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.mark.parametrize("compressed", [False, True])
def test_reads_values(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / ("images.gz" if compressed else "images")
    path.write_bytes(gzip.compress(idx_bytes(VALUES), mtime=0) if compressed else idx_bytes(VALUES))
    np.testing.assert_array_equal(read_idx(path, dimensions=3), VALUES)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "IDX magic 00000803"),
        (b"\0\0\x08\x03\0\0", "IDX magic"),
        (b"\0\0\x0d\x03" + idx_bytes(VALUES)[4:], "starts with 00000d03"),
        (idx_bytes(VALUES[0]), "starts with 00000802"),
        (idx_bytes(VALUES)[:-1], "24 values, but has 23"),
        (idx_bytes(VALUES) + b"x", "24 values, but has 25"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31), "but has 0"),
    ],
)
def test_refuses_damaged_files(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        read_idx(path, dimensions=3)


@pytest.mark.parametrize("content", [b"not gzip at all", gzip.compress(idx_bytes(VALUES), mtime=0)[:-12]])
def test_refuses_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="complete gzip file"):
        read_idx(path, dimensions=3)


def test_missing_file_says_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        idx_files(tmp_path, "fashion-mnist", train=False)
    message = str(caught.value)
    assert str(tmp_path / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte") in message
    assert "fedcmoo data get fashion-mnist" in message


def test_pair_must_fit_together(tmp_path: Path) -> None:
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(idx_bytes(np.zeros((3, 28, 28), np.uint8)))
    labels.write_bytes(idx_bytes(np.array([1, 2], np.uint8)))
    with pytest.raises(ValueError, match="must have 2 images of 28x28"):
        load_idx_pair(images, labels)
    labels.write_bytes(idx_bytes(np.array([1, 2, 11], np.uint8)))
    with pytest.raises(ValueError, match=r"labels in 0\.\.9, but has a 11"):
        load_idx_pair(images, labels)
