"""The IDX format of MNIST and FashionMNIST, compressed or not.

A file is the bytes 0, 0, 8 (unsigned bytes), the number of dimensions, the dimensions as big-endian 32-bit
integers, and then the values, the last dimension running fastest.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.catalogue import DATA_SETS
from fedcmoo.data.folder import require

UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read the array in an IDX file of unsigned bytes (gzip-compressed if its name ends in .gz).

    Args:
        path: the file.
        dimensions: the required number of dimensions: 3 for images, 1 for labels.

    Raises:
        ValueError: if the file is not exactly one complete IDX file of that kind.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as compressed:
                content = compressed.read()
        else:
            content = path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a complete gzip file, but reading it failed: {error}") from error
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]) or len(content) < start:
        raise ValueError(
            f"{path} must start with the IDX magic {bytes([0, 0, UNSIGNED_BYTE, dimensions]).hex()} (unsigned "
            f"bytes, {dimensions} dimensions) and {dimensions} sizes, but starts with {content[:start].hex()}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} says its shape is {shape}, {math.prod(shape)} values, but has {len(content) - start}; "
            "delete it and get it again"
        )
    # A copy, since torch warns about read-only views of bytes.
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def idx_files(folder: Path, data_set: str, train: bool) -> tuple[Path, Path]:
    """The files of images and labels of "mnist" or "fashion-mnist"."""
    names = DATA_SETS[data_set].needs
    images, labels = (require(folder, places, data_set) for places in (names[:2] if train else names[2:]))
    return images, labels


def load_idx_pair(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """28x28 images [n, 28, 28] and their labels in 0..9, [n], of a pair of IDX files."""
    x, y = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
    if len(x) != len(y) or x.shape[1:] != (28, 28):
        raise ValueError(f"{images} must have {len(y)} images of 28x28 for its labels, but has shape {x.shape}")
    if y.size and y.max() > 9:
        raise ValueError(f"{labels} must have labels in 0..9, but has a {y.max()}")
    return x, y.astype(np.int64)
