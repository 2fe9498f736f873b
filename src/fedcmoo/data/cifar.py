"""CIFAR-10 from its official files: the binary or the python version, unpacked or as the published archive."""

import io
import pickle
import pickletools
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.folder import require
from fedcmoo.files import DamagedError, reading

PIXELS = 3 * 32 * 32
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
LARGEST = 2**26
"""An upper limit on the bytes of a batch file, more than twice its real size."""
PLACES = (BINARY, "cifar-10-binary.tar.gz", PYTHON, "cifar-10-python.tar.gz")
"""Folders and archives, in search order."""


def cifar10_source(folder: Path) -> Path:
    """The folder or archive that holds CIFAR-10."""
    return require(folder, PLACES, "cifar10")


def load_cifar10(source: Path, train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [n, 3, 32, 32] and labels [n] in 0..9 of the training or the test part.

    Args:
        source: a folder cifar-10-batches-bin or cifar-10-batches-py, or an archive of one of them.
        train: whether to read the five training batches or the test batch.
    """
    binary = "bin" in source.name
    batches = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    names = [f"{name}.bin" if binary else name for name in batches]
    parse = _parse_binary if binary else _parse_python
    parts = []
    for name, content in _contents(source, names):
        if len(content) > LARGEST:
            raise DamagedError(f"{name} in {source} must have at most {LARGEST:,} bytes, but has more")
        with reading(f"{name} in {source}"):
            parts.append(parse(content, name))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _contents(source: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The bytes of the named files of a folder or archive, in the order of `names`."""
    if source.is_dir():
        for name in names:
            path = source / name
            if not path.exists():
                raise ValueError(f"{source} must hold {name}, but does not; delete the folder and get it again")
            with path.open("rb") as file:
                yield name, file.read(LARGEST + 1)
        return
    # Read in memory: members are never extracted, so their paths cannot write to the disk.
    with reading(source), tarfile.open(source) as archive:
        members = {Path(m.name).name: m for m in archive.getmembers() if m.isfile()}
        for name in names:
            member = archive.extractfile(members[name]) if name in members else None
            if member is None:
                raise DamagedError(f"{source} must hold {name}, but does not; delete it and get it again")
            yield name, member.read(LARGEST + 1)


def _parse_binary(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of one label byte and 3072 pixels."""
    if not content or len(content) % (1 + PIXELS):
        raise ValueError(f"{name} must be a whole number of {1 + PIXELS}-byte rows, but has {len(content)} bytes")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:].reshape(-1, 3, 32, 32), _labels(rows[:, 0].astype(np.int64), name)


def _parse_python(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """A pickled dict with an array `data` of shape [n, 3072] and a list `labels` of whole numbers."""
    _check_memory(content)
    batch = _NumpyOnly(io.BytesIO(content), encoding="bytes").load()
    entries = batch if isinstance(batch, dict) else {}
    data, labels = (entries.get(key, entries.get(key.encode())) for key in ("data", "labels"))
    images: NDArray[np.uint8] = data.values if isinstance(data, _ByteArray) else np.empty(0, np.uint8)
    if images.ndim != 2 or images.shape[1] != PIXELS or not isinstance(labels, list):
        raise ValueError(f"{name} must hold an array `data` of shape [n, {PIXELS}] and a list `labels`, but does not")
    if not all(type(label) is int for label in labels):  # nested lists could need any amount of memory
        raise ValueError(f"{name} must have whole numbers as labels, but has something else")
    if len(labels) != len(images):
        raise ValueError(f"{name} must have one label per image, but has {len(labels)} for {len(images)}")
    return images.reshape(-1, 3, 32, 32), _labels(np.array(labels, dtype=np.int64), name)


def _labels(labels: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    if not set(np.unique(labels)) <= set(range(10)):
        raise ValueError(f"{name} must have labels in 0..9, but has {labels.min()}..{labels.max()}")
    return labels


class _ByteType:
    """Replacement for numpy.dtype: a batch contains only bytes."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(
                f"a CIFAR-10 batch holds arrays of bytes (u1) only, but this one names {code!r}"
            )

    def __setstate__(self, state: object) -> None:
        """Ignore the state, which could turn bytes into records."""


class _ByteArray:
    """Replacement for numpy's arrays, which takes only shape, order and bytes from a pickled state."""

    def __init__(self, *_: object) -> None:
        self.values = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, _, by_column, content = state
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


def _check_memory(content: bytes) -> None:
    """Refuse opcodes that make an unpickler allocate more than the file's size: large memo indices, byte arrays."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "BYTEARRAY8" or (opcode.name in ("PUT", "LONG_BINPUT") and int(str(argument)) > 2**20):
            raise pickle.UnpicklingError(f"a CIFAR-10 batch has no {opcode.name} {argument}")


class _NumpyOnly(pickle.Unpickler):
    """Unpickles plain containers and arrays of bytes. Any other global in a pickle is refused, not imported."""

    ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy._core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy", "ndarray"): _ByteArray,
        ("numpy", "dtype"): _ByteType,
    }

    def find_class(self, module: str, name: str) -> Any:
        admitted = self.ADMITTED.get((module, name))
        if admitted is None:
            raise pickle.UnpicklingError(
                f"a CIFAR-10 batch holds numpy arrays only, but this file asks for {module}.{name}; "
                "it is not the official file, delete it"
            )
        return admitted
