"""Top-k sparsification: the entries of largest magnitude."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.compression.base import FloatCompressor, Shape
from fedcmoo.messages import BadMessageError, Field, Message, check

INDEX_BYTES = 4


@dataclass(frozen=True)
class TopK(FloatCompressor):
    """Sends the K entries of largest magnitude and their positions; the others decode to zero.

    That is the best approximation with K entries. The positions are a list of K indices of 32 bits or a bitmap of
    M·d bits, whichever leaves more of the budget for the entries: the bitmap if K is more than a 32nd of all.

    >>> h = torch.tensor([[1.0, -3.0], [2.0, 0.5]])
    >>> payload = TopK().encode(h, budget=9, random=torch.Generator())
    >>> payload
    Message(entries: torch.float32 [2], bitmap: torch.uint8 [1])
    >>> TopK().decode(payload, (2, 2), budget=9, sender="client 0").tolist()
    [[0.0, -3.0], [2.0, 0.0]]
    """

    unbiased: ClassVar[bool] = False

    def least(self, shape: Shape) -> int:
        M, d = shape
        return self.overhead + self.dtype.itemsize + min(INDEX_BYTES, _bytes_of(M * d))

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        M, d = h.shape
        if M * d >= 2**31:
            raise ValueError(f"top-k takes matrices of less than 2^31 entries, but got {M} x {d}")
        count, bitmap = self._plan((M, d), budget)
        index, values = _largest(h, count)
        entries = self.pack("entries", values)
        if not bitmap:
            return Message(**entries, index=index.to(torch.int32))
        bits = np.zeros(M * d, dtype=bool)
        bits[index.cpu().numpy()] = True
        return Message(**entries, bitmap=torch.from_numpy(np.packbits(bits)))

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        M, d = shape
        count, bitmap = self._plan(shape, budget)
        position = Field((_bytes_of(M * d),), torch.uint8) if bitmap else Field((count,), torch.int32)
        where = "bitmap" if bitmap else "index"
        check(payload, {**self.fields("entries", (count,)), where: position}, sender)
        index = _from_bitmap(payload, M * d, count, sender) if bitmap else _from_list(payload, M * d, sender)
        h = torch.zeros(M * d)
        h[index] = self.unpack("entries", payload)
        return h.view(M, d)

    def _plan(self, shape: Shape, budget: int) -> tuple[int, bool]:
        """The number of entries that fit into the budget, and whether their positions are sent as a bitmap."""
        self.check_budget(shape, budget)
        M, d = shape
        left = budget - self.overhead
        by_list = left // (self.dtype.itemsize + INDEX_BYTES)
        by_bitmap = (left - _bytes_of(M * d)) // self.dtype.itemsize
        return min(max(by_list, by_bitmap), M * d), by_bitmap >= by_list


def _bytes_of(bits: int) -> int:
    return -(-bits // 8)


def _largest(h: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Flat index (ascending) and value of the `count` entries of largest magnitude, one row in memory at a time."""
    d = h.shape[1]
    values, index = h.new_empty(0), torch.empty(0, dtype=torch.int64, device=h.device)
    threshold = -1.0
    for k, row in enumerate(h):
        better = (row.abs() > threshold).nonzero()[:, 0]
        values, index = torch.cat([values, row[better]]), torch.cat([index, better + k * d])
        if len(values) > count:
            best = values.abs().topk(count, sorted=False).indices
            values, index = values[best], index[best]
            threshold = values.abs().min().item()
    index, order = index.sort()
    return index, values[order]


def _from_list(payload: Message, entries: int, sender: str) -> Tensor:
    index = payload["index"].long()
    inside = bool((index >= 0).all() and (index < entries).all())
    if not (inside and bool((index[1:] > index[:-1]).all())):
        raise BadMessageError(
            f"{sender}: 'index' must be ascending from 0 to {entries - 1}, but reaches from {int(index.min())} to "
            f"{int(index.max())} or has repetitions"
        )
    return index


def _from_bitmap(payload: Message, entries: int, count: int, sender: str) -> Tensor:
    bits = np.unpackbits(payload["bitmap"].numpy())
    index = np.flatnonzero(bits)
    if len(index) != count or bits[entries:].any():
        raise BadMessageError(
            f"{sender}: 'bitmap' must mark {count} of the first {entries} bits, but marks {len(index)} of {len(bits)}"
        )
    return torch.from_numpy(index)
