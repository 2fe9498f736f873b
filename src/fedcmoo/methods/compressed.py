"""Compression of the updates that clients send to the server."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.compression import Compressor, Identity, Shape, budget_bytes
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Field, Message, check
from fedcmoo.rounds import Sizes

PLAIN = Identity()
"""The encoding of the model's buffers: they are few, compression noise could make a variance negative, and in float16
beside large values a small one could become zero."""


@dataclass(frozen=True)
class Compressed(Contribution):
    """A contribution whose updates are compressed within a budget, and whose other floats are sent as they are.

    Args:
        plain: the contribution.
        compressor: the compressor of its updates.
        budget: the size of all its updates together, in multiples of d numbers.
    """

    plain: Contribution
    compressor: Compressor
    budget: float

    summable: ClassVar[bool] = False

    @property
    def exact(self) -> bool:
        return isinstance(self.compressor, Identity)

    @property
    def needs_exact_sums(self) -> str | None:
        return self.plain.needs_exact_sums

    def compute(self, client: Client, message: Message) -> Arrays:
        return self.plain.compute(client, message)

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return self.plain.fields(sizes)

    def encode(self, arrays: Arrays, client: Client) -> Message:
        budget, integers, parts = self._budget(client.sizes), {}, {}
        for name, array in arrays.items():
            if array.is_floating_point():
                random = client.random(f"compress {name}")
                parts[name] = self._compressor(name).encode(array.view(_rows(array.shape)), budget, random)
            else:
                integers[name] = array
        return Message(**Message.join(parts), **integers)

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        fields, arrays = self.fields(sizes), {}
        for name, field in fields.items():
            if field.dtype.is_floating_point:
                shape, part = _rows(field.shape), payload.part(name)
                rows = self._compressor(name).decode(part, shape, self._budget(sizes), f"{sender}: {name!r}")
                arrays[name] = rows.to(field.dtype).view(shape if len(field.shape) > 1 else -1)
        integers = {name: field for name, field in fields.items() if name not in arrays}
        decoded = tuple(f"{name}/" for name in arrays)
        rest = Message(**{key: array for key, array in payload.items() if not key.startswith(decoded)})
        check(rest, integers, sender)
        return {**arrays, **rest}

    def check(self, sizes: Sizes) -> None:
        """Raise unless the budget is enough for the updates."""
        updates = self.fields(sizes)[str(self.plain.update)]
        self.compressor.check_budget(_rows(updates.shape), self._budget(sizes))

    def _compressor(self, name: str) -> Compressor:
        return self.compressor if name == self.plain.update else PLAIN

    def _budget(self, sizes: Sizes) -> int:
        return budget_bytes(self.budget, sizes.d)


def _rows(shape: Sequence[int | None]) -> Shape:
    """The shape of a vector or matrix when viewed as a matrix."""
    *rows, columns = (int(n or 0) for n in shape)
    return math.prod(rows), columns
