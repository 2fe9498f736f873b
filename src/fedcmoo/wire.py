"""The format of messages on the wire: a header of about twenty bytes per array, and the arrays' bytes.

The header has the number of arrays (1 byte) and for each of them, in order:

    1 byte   how many bytes of its name are those of the previous name
    1 byte   the length n of the rest of its name
    n bytes  the rest of its name, UTF-8
    1 byte   16 times its dtype's number in `DTYPES`, plus its number of dimensions
    ...      its dimensions, seven bits in a byte, the lowest first; all bytes but the last have the highest bit set

The arrays' bytes follow in the same order, without gaps, in the machine's byte order, which is little-endian on all
machines for which there is a release of PyTorch. The four arrays of an upload of 2.7 kB have headers of 63 bytes; in
JSON, as in safetensors, these would take 312.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)
MOST_DIMENSIONS = 15
MOST_BYTES = 255
"""The maximum length of a name, and the maximum number of arrays."""
DIMENSION_BYTES = 7
"""The maximum length of a dimension."""
LARGEST = 2**62
"""An upper bound on the bytes of an array if dimensions of zero counted as one; torch computes strides in 64 bits."""


def pack(arrays: Mapping[str, Tensor]) -> bytes:
    """Encode named arrays, which must be in main memory.

    >>> pack({"a/x": torch.zeros(2, dtype=torch.uint8), "a/y": torch.ones(1, dtype=torch.uint8)}).hex(" ")
    '02 00 03 61 2f 78 41 02 02 01 79 41 01 00 00 01'
    """
    data = (array.contiguous().reshape(-1).view(torch.uint8).numpy().data for array in arrays.values())
    return b"".join([header(arrays), *data])


def header(arrays: Mapping[str, Tensor]) -> bytes:
    """The header of named arrays.

    Raises:
        ValueError: if there are more than 255 arrays, or one has a name of more than 255 bytes, more than 15
            dimensions or another dtype than those in `DTYPES`.
    """
    if len(arrays) > MOST_BYTES:
        raise ValueError(f"a message may have at most {MOST_BYTES} arrays, but this one has {len(arrays)}")
    parts, last = [bytes([len(arrays)])], b""
    for text, array in arrays.items():
        name = text.encode()
        if len(name) > MOST_BYTES or array.ndim > MOST_DIMENSIONS or array.dtype not in DTYPES:
            raise ValueError(
                f"an array may have a name of at most {MOST_BYTES} bytes, at most {MOST_DIMENSIONS} dimensions and one "
                f"of the dtypes {', '.join(str(dtype).removeprefix('torch.') for dtype in DTYPES)}, "
                f"but {text!r:.80} has a name of {len(name)} bytes, {array.ndim} dimensions and dtype {array.dtype}"
            )
        same = sum(itertools.takewhile(bool, map(operator.eq, last, name)))  # bytes at the front
        kind = DTYPES.index(array.dtype) * 16 + array.ndim
        parts += [bytes([same, len(name) - same]), name[same:], bytes([kind]), *map(_number, array.shape)]
        last = name
    return b"".join(parts)


def unpack(data: bytes) -> dict[str, Tensor]:
    """Decode what `pack` encoded, into arrays with memory of their own.

    Memory is allocated only if the header announces exactly the bytes that follow it. Equal arrays have equal bytes: a
    header that `header` would not have written is refused.

    Raises:
        ValueError: if the bytes are not those of a message.
    """
    reader, name = _Reader(data), b""
    arrays: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for _ in range(reader.take(1)[0]):
        same, more = reader.take(2)
        name = name[:same] + reader.take(more)
        kind, dimensions = divmod(reader.take(1)[0], 16)
        if kind >= len(DTYPES):
            raise ValueError(f"there are {len(DTYPES)} dtypes, but one has number {kind}")
        shape = tuple(reader.number() for _ in range(dimensions))
        if DTYPES[kind].itemsize * math.prod(max(1, n) for n in shape) > LARGEST:
            raise ValueError(f"an array has shape {shape}, which is too large")
        arrays[name.decode()] = DTYPES[kind], shape
    sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in arrays.values()]
    if sum(sizes) != len(data) - reader.start:
        raise ValueError(f"its arrays have {sum(sizes)} bytes, but {len(data) - reader.start} follow")
    content, start = np.frombuffer(data, np.uint8), reader.start
    unpacked = {}
    for (text, (dtype, shape)), size in zip(arrays.items(), sizes, strict=True):
        # Aligned memory of its own: products of arrays at odd addresses may differ in their last bits.
        unpacked[text] = torch.empty(shape, dtype=dtype)
        unpacked[text].view(-1).view(torch.uint8).numpy()[:] = content[start : start + size]
        start += size
    if header(unpacked) != data[: reader.start]:
        raise ValueError("its header has names twice, or is longer than it has to be")
    return unpacked


class _Reader:
    """Reads bytes from the front; raises ValueError if there are too few."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.start = 0

    def take(self, n: int) -> bytes:
        stop = self.start + n
        if stop > len(self.data):
            raise ValueError(f"it ends after {len(self.data)} bytes, within its header")
        part, self.start = self.data[self.start : stop], stop
        return part

    def number(self) -> int:
        value = 0
        for place in range(DIMENSION_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise ValueError(f"a dimension has more than {DIMENSION_BYTES} bytes")


def _number(value: int) -> bytes:
    """Seven bits of a number in a byte, the lowest first."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + _number(rest) if rest else bytes([low])
