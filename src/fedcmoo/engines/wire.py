"""How objects travel between a run and its own worker processes: pickled, with all arrays beside the pickle.

The bytes of tensors and NumPy arrays are left out of the pickle (its protocol 5 calls them out-of-band buffers). In a
pipe they follow it as they are; in shared memory they are laid out once, and every worker that maps it reads the same
pages. Pickle is for processes that one run started itself; what comes from other machines is a `Message`.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
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
"""What pickle raises about objects that it cannot take."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Pickled:
    """An object as a pickle and the buffers beside it; `needs_main` if it mentions things of the main script."""

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
    """The object again; its arrays lie in the buffers given."""
    return pickle.loads(stream, buffers=buffers)


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
        """A tensor's whole storage as an array. Views of one storage get one array, which the pickle holds once."""
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
    """Read an object from a pipe; EOFError if there is nobody at its other end."""
    stream, sizes = pickle.loads(connection.recv_bytes())
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        connection.recv_bytes_into(buffer)
    return loads(stream, buffers)


class SharedMemory:
    """Nameless memory that other processes can map, given its file descriptor; it is freed with its last user.

    This process stops being one with `close`, or when it forgets the object.

    Not in /dev/shm where that can be avoided: containers often give that 64 megabytes.
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


class Parcel:
    """An object in shared memory, from which any number of workers can make their own without copies of its arrays."""

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


def open_parcel(fd: int, size: int, contents: slice) -> Any:
    """In a worker: the object of a parcel. Pages are shared until somebody writes to one, who then has a copy."""
    memory = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    stream, spans = pickle.loads(memory[contents])
    view = memoryview(memory)
    return loads(stream, [view[start:stop] for start, stop in spans])
