"""Serialization between a run and its worker processes: pickle, with all arrays stored outside the pickle.

Tensors and NumPy arrays are out-of-band buffers (pickle protocol 5). In a pipe they follow the pickle; in shared memory
they are written once, and every worker that maps it reads the same pages. Pickle is used only for processes that the
run itself started; data from other machines is a `Message`.
"""

import io
import mmap
import os
import pickle
import tempfile
import traceback
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64
NOT_PICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RuntimeError)
"""The exceptions that pickle raises for objects that it cannot serialize."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Pickled:
    """An object as a pickle and its buffers; `needs_main` if it refers to something in the main script."""

    stream: bytes
    buffers: Sequence[memoryview]
    needs_main: bool


def dumps(value: Any) -> Pickled:
    """Pickle, without a copy of any array."""
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    pickler = _Pickler(file, buffers)
    pickler.dump(value)
    return Pickled(file.getvalue(), [buffer.raw() for buffer in buffers], pickler.needs_main)


def loads(stream: bytes, buffers: Sequence[Any]) -> Any:
    """Restore the object; its arrays are views of the given buffers."""
    return pickle.loads(stream, buffers=buffers)


def for_other_process(error: BaseException) -> BaseException:
    """The error with its traceback as a note, or if its type cannot be pickled, another one with its text and notes."""
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.__notes__ = error.__notes__
        return other
    return error


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.needs_main = False
        self._storages: dict[tuple[int, int], Bytes] = {}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__":
            self.needs_main = True
        if type(value) is Tensor and _is_plain(value):
            parts = (value.dtype, value.storage_offset(), tuple(value.shape), value.stride())
            return _tensor, (self._bytes_of(value), *parts)
        return NotImplemented

    def _bytes_of(self, tensor: Tensor) -> Bytes:
        """A tensor's whole storage as an array. Views of one storage share one array, which is pickled once."""
        storage = tensor.untyped_storage()
        place = (storage.data_ptr(), storage.nbytes())
        if place not in self._storages:
            self._storages[place] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return self._storages[place]


def _is_plain(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    )


def _tensor(storage: Bytes, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return torch.empty(0, dtype=dtype).set_(torch.from_numpy(storage).untyped_storage(), offset, shape, stride)


def send(connection: Connection, value: Any) -> None:
    """Write an object to a pipe."""
    pickled = dumps(value)
    connection.send_bytes(pickle.dumps((pickled.stream, [buffer.nbytes for buffer in pickled.buffers])))
    for buffer in pickled.buffers:
        connection.send_bytes(buffer)


def receive(connection: Connection) -> Any:
    """Read an object from a pipe; EOFError if its other end is closed."""
    stream, sizes = pickle.loads(connection.recv_bytes())
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        connection.recv_bytes_into(buffer)
    return loads(stream, buffers)


class SharedMemory:
    """Anonymous memory that other processes can map, given its file descriptor; it is freed when its last user is gone.

    It avoids /dev/shm if possible, since containers often limit that to 64 megabytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("fedcmoo")
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        self.close = weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, self.size)

    def map(self) -> mmap.mmap:
        """The memory, for reading and writing."""
        return mmap.mmap(self.fd, self.size)


class SharedObject:
    """An object in shared memory, which any number of workers can load without copying its arrays."""

    def __init__(self, value: Any) -> None:
        pickled = dumps(value)
        self.needs_main = pickled.needs_main
        spans, stop = list[tuple[int, int]](), 0
        for buffer in pickled.buffers:
            start = -(-stop // ALIGNMENT) * ALIGNMENT
            stop = start + buffer.nbytes
            spans.append((start, stop))
        contents = pickle.dumps((pickled.stream, spans))
        self.contents = slice(stop, stop + len(contents))
        self.memory = SharedMemory(stop + len(contents))
        with self.memory.map() as memory:
            memory[self.contents] = contents
            for buffer, (start, stop) in zip(pickled.buffers, spans, strict=True):
                memory[start:stop] = buffer


def load_shared(fd: int, size: int, contents: slice) -> Any:
    """Load a `SharedObject` in a worker. Pages are shared until a worker writes to one and gets its own copy."""
    memory = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    stream, spans = pickle.loads(memory[contents])
    view = memoryview(memory)
    return loads(stream, [view[start:stop] for start, stop in spans])
