"""All that crosses the line between server and client: named arrays.

A `Message` knows its payload in bytes, and goes over a wire in the safetensors format: no pickle, no code. What
arrives is checked against what was expected (names, dtypes, shapes, finite values) before anything uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor


class BadMessageError(ValueError):
    """A message that is not what was asked for: it is refused, and counts as a failure of its sender."""


class Message(Mapping[str, Tensor]):
    """Named arrays, from the server to a client or back.

    >>> message = Message(w=torch.tensor([0.5, 0.5]))
    >>> message.nbytes
    8
    >>> Message.decode(message.encode())["w"].tolist()
    [0.5, 0.5]
    """

    def __init__(self, /, **arrays: Tensor) -> None:  # any name may come in, even "self"
        self._arrays = arrays

    def __getitem__(self, name: str) -> Tensor:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{n}: {a.dtype} {list(a.shape)}' for n, a in self.items())})"

    @property
    def nbytes(self) -> int:
        """The payload's size: the arrays' bytes, without the few hundred of the wire format's header."""
        return sum(array.numel() * array.element_size() for array in self.values())

    def cpu(self) -> Message:
        """The message with its arrays in main memory."""
        return Message(**{name: array.detach().cpu() for name, array in self.items()})

    def encode(self) -> bytes:
        """The message in the safetensors format."""
        return safetensors.torch.save({name: a.contiguous() for name, a in self.cpu().items()})

    @classmethod
    def decode(cls, data: bytes, limit: int | None = None) -> Message:
        """Read what `encode` wrote.

        Args:
            data: bytes from somewhere else.
            limit: refuse more bytes than this.
        """
        if limit is not None and len(data) > limit:
            raise BadMessageError(f"a message may have at most {limit:,} bytes, but this one has {len(data):,}")
        try:
            return cls(**safetensors.torch.load(data))
        except (SafetensorError, ValueError, KeyError, OverflowError) as error:
            raise BadMessageError(f"not a message: {error}") from None


@dataclass(frozen=True)
class Field:
    """What one array of a message must be: its shape (None for a dimension of any size) and dtype."""

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32


def check(message: Message, expected: Mapping[str, Field], sender: str) -> None:
    """Raise `BadMessageError`, naming sender and field, unless the message has just the expected arrays, all finite."""
    if set(message) != set(expected):
        raise BadMessageError(f"{sender} must send {sorted(expected)}, but sent {sorted(message)}")
    for name, field in expected.items():
        array = message[name]
        if array.dtype != field.dtype:
            raise BadMessageError(f"{sender}: {name!r} must be {field.dtype}, but is {array.dtype}")
        fits = array.ndim == len(field.shape) and all(
            n is None or n == m for n, m in zip(field.shape, array.shape, strict=True)
        )
        if not fits:
            raise BadMessageError(f"{sender}: {name!r} must have shape {field.shape}, but has {tuple(array.shape)}")
        if array.is_floating_point() and not all_finite(array):
            raise BadMessageError(f"{sender}: {name!r} must be finite, but has NaN or infinite entries")


def all_finite(array: Tensor) -> bool:
    """Whether no entry is NaN or infinite; a sum is enough to tell, unless it overflows."""
    return math.isfinite(array.sum().item()) or bool(torch.isfinite(array).all())
