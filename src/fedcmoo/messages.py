"""Messages between server and clients: named arrays.

A `Message` knows its size in bytes, and is serialized in a format of names and plain numbers (see `wire`): no pickle,
no code. Received messages are checked against the expected names, dtypes, shapes and finite values before use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from fedcmoo.wire import header, pack, unpack

Add = Literal["sum", "newest", "each"]
"""How an array is combined over clients: as a sum, by keeping the last, or, if the server needs each array, as rows of
one array in client order."""


DIGEST = "digest"
"""The placeholder for arrays that a client keeps to itself."""


class BadMessageError(ValueError):
    """A message does not match the request: it is refused, and counts as a failure of its sender."""


class Message(Mapping[str, Tensor]):
    """Named arrays, from the server to a client or back.

    >>> message = Message(w=torch.tensor([0.5, 0.5]))
    >>> message.nbytes, message.size
    (8, 14)
    >>> Message.decode(message.encode())["w"].tolist()
    [0.5, 0.5]
    """

    def __init__(self, /, **arrays: Tensor) -> None:  # any name is allowed, even "self"
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
        """The bytes of the arrays."""
        return sum(array.nbytes for array in self.values())

    @property
    def size(self) -> int:
        """The bytes of the message as it is sent: those of the arrays and of the header."""
        return len(header(self)) + self.nbytes

    @classmethod
    def join(cls, parts: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """Join several messages into one: array `key` of part `name` becomes "name/key"."""
        return cls(**{f"{name}/{key}": array for name, part in parts.items() for key, array in part.items()})

    def part(self, name: str) -> Message:
        """The part of this name in a message that `join` made.

        >>> Message.join({"train": Message(w=torch.ones(2)), "gram": Message()}).part("train")
        Message(w: torch.float32 [2])
        """
        start = f"{name}/"
        return Message(**{key.removeprefix(start): array for key, array in self.items() if key.startswith(start)})

    def apart(self, name: str) -> tuple[Message, Message]:
        """The part of this name, and the message without it."""
        rest = {key: array for key, array in self.items() if not key.startswith(f"{name}/")}
        return self.part(name), Message(**rest)

    def take(self, name: str, field: Field, sender: str) -> tuple[Tensor, Message]:
        """The array of this name, checked, and the message without it."""
        found = Message(**{name: self[name]} if name in self else {})
        check(found, {name: field}, sender)
        return self[name], Message(**{n: array for n, array in self.items() if n != name})

    def cpu(self) -> Message:
        """The message with its arrays in main memory, contiguous as after a transfer: products of matrices with other
        strides may differ in their last bits."""
        return Message(**{name: array.detach().cpu().contiguous() for name, array in self.items()})

    def encode(self) -> bytes:
        """The message as it is sent."""
        return pack(self.cpu())

    @classmethod
    def decode(cls, data: bytes, limit: int | None = None) -> Message:
        """Read what `encode` wrote; more bytes than the limit are refused."""
        if limit is not None and len(data) > limit:
            raise BadMessageError(f"a message may have at most {limit:,} bytes, but this one has {len(data):,}")
        try:
            return cls(**unpack(data))
        except ValueError as error:
            raise BadMessageError(f"not a message: {error}") from None


@dataclass(frozen=True)
class Field:
    """The specification of one array.

    Attributes:
        shape: its shape, with None for a dimension of any size.
        dtype: its dtype.
        add: how it is added up over clients.
        degree: the power of s by which it scales when a client's gradients are multiplied by s: 1 for gradients and
            updates, 2 for their products.
        clippable: whether it may be scaled down to a bound; false for losses and a model's buffers.
        not_negative: the ranges (start, stop) of its entries that cannot be negative, such as variances.
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32
    add: Add = "sum"
    degree: int = 1
    clippable: bool = True
    not_negative: tuple[tuple[int, int], ...] = ()


def check(message: Message, expected: Mapping[str, Field], sender: str) -> None:
    """Raise `BadMessageError`, naming sender and field, unless a message has exactly the expected, finite arrays."""
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
    check_values(message, expected, sender)


def check_values(arrays: Mapping[str, Tensor], expected: Mapping[str, Field], sender: str) -> None:
    """Raise `BadMessageError` unless all floats are finite, and not negative where that is required.

    Decoded arrays are checked again, since products of finite numbers may not be finite.
    """
    for name, array in arrays.items():
        if array.is_floating_point() and not all_finite(array):
            raise BadMessageError(f"{sender}: {name!r} must be finite, but has NaN or infinite entries")
        for start, stop in expected[name].not_negative if name in expected else ():
            if (array[start:stop] < 0).any():
                raise BadMessageError(f"{sender}: variances in {name!r} must not be negative, but one is")


def all_finite(array: Tensor) -> bool:
    """Whether no entry is NaN or infinite; a finite sum is sufficient proof."""
    return math.isfinite(array.sum().item()) or bool(torch.isfinite(array).all())
