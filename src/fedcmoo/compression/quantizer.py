"""An unbiased stochastic quantizer in the manner of QSGD."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import NUMBER, Compressor, Shape
from fedcmoo.messages import BadMessageError, Field, Message, check

GROUP = 256
"""Entries that share a scale: fewer follow the entries' size more closely, more cost less."""
WIDTHS = (16, 8, 4, 2)
BLOCK = 2**20
"""Entries that are worked on at a time."""


@dataclass(frozen=True)
class Quantizer(Compressor):
    """Rounds each entry at random to one of its two neighbours on a grid, so that it is right on average.

    The entries of a row are taken in groups of 256. With b bits the grid has the levels -s, …, s, s = 2^(b-1) - 1,
    times scale / s, where scale is the group's largest magnitude. QSGD scales by the norm of the whole vector and
    codes the many zeros that follow; the smaller scale needs no such code and has less variance at a fixed width.
    b is the largest of 16, 8, 4 and 2 that the budget allows.

    References:
        Alistarh, Grubic, Li, Tomioka and Vojnovic. QSGD: communication-efficient SGD via gradient quantization and
        encoding. NeurIPS 2017.
    """

    unbiased: ClassVar[bool] = True

    def least(self, shape: Shape) -> int:
        return quantized_bytes(shape, WIDTHS[-1])

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        M, d = h.shape
        return quantize(h, self._width((M, d), budget), random)

    def decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        return dequantize(payload, shape, self._width(shape, budget), sender)

    def _width(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        return next(bits for bits in WIDTHS if quantized_bytes(shape, bits) <= budget)


def quantized_bytes(shape: Shape, bits: int) -> int:
    """The size of what `quantize` makes."""
    M, d = shape
    return M * (-(-d * bits // 8) + _groups(d) * NUMBER)


def quantized_length(row_bytes: int, bits: int) -> int:
    """How many entries of `bits` bits a row of so many bytes holds, with their scales; floats, of 32, need none."""
    if bits == 32:
        return row_bytes // NUMBER
    groups, rest = divmod(row_bytes, GROUP * bits // 8 + NUMBER)
    return groups * GROUP + max(0, (rest - NUMBER) * 8 // bits)


def quantize(h: Tensor, bits: int, random: torch.Generator) -> Message:
    """The rows of h [M, d] in `bits` bits an entry, rounded at random without bias: `levels` and `scale` [M, groups].

    A few rows are in memory at a time, beside the result.
    """
    M, d = h.shape
    s = _largest_level(bits)
    levels, scales = [], []
    for rows in _row_blocks(M, d):
        groups = torch.nn.functional.pad(h[rows].float(), (0, -d % GROUP)).view(-1, _groups(d), GROUP)
        scale = groups.abs().amax(dim=2)
        noise = torch.rand(groups.shape, generator=random).to(h.device)
        steps = noise.addcmul_(groups, (s / scale).nan_to_num_(posinf=0.0)[..., None])  # entry / scale · s + noise
        # The clamp guards against entries that rounding made a little larger than their scale.
        levels.append(_pack(steps.floor_().clamp_(-s, s).view(len(steps), -1)[:, :d], bits))
        scales.append(scale)
    return Message(levels=torch.cat(levels), scale=torch.cat(scales))


def dequantize(payload: Message, shape: Shape, bits: int, sender: str) -> Tensor:
    """Check what `quantize` made, and return float32 [M, d]."""
    M, d = shape
    check(payload, {"levels": _levels_field(shape, bits), "scale": Field((M, _groups(d)))}, sender)
    scale, s = payload["scale"], _largest_level(bits)
    if scale.amin() < 0:
        raise BadMessageError(f"{sender}: 'scale' must not be negative, but has {scale.amin().item()}")
    h = torch.zeros(M, _groups(d) * GROUP)
    for rows in _row_blocks(M, d):
        levels = _unpack(payload["levels"][rows], d, bits)
        if levels.amin() < -s:
            raise BadMessageError(f"{sender}: 'levels' must be from -{s} to {s}, but has {int(levels.amin())}")
        h[rows, :d] = levels
        h[rows].view(-1, _groups(d), GROUP).mul_(scale[rows, :, None] / s)
    return h[:, :d]


def _largest_level(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


def _groups(d: int) -> int:
    return -(-d // GROUP)


def _row_blocks(M: int, d: int) -> Iterator[slice]:
    step = max(1, BLOCK // d)
    for start in range(0, M, step):
        yield slice(start, start + step)


def _levels_field(shape: Shape, bits: int) -> Field:
    M, d = shape
    if bits >= 8:
        return Field((M, d), torch.int16 if bits == 16 else torch.int8)
    return Field((M, -(-d * bits // 8)), torch.uint8)


def _pack(levels: Tensor, bits: int) -> Tensor:
    """Whole numbers [rows, d] as int16 or int8; shorter ones as bytes that hold 8 / bits of them, plus 2^(bits - 1).

    A row is then cut into 8 / bits parts of n entries, and byte t holds entry t of each part, the first part's lowest.
    """
    if bits == 16:
        return levels.to(torch.int16)
    if bits == 8:
        return levels.to(torch.int8)
    parts = 8 // bits
    n = -(-levels.shape[1] // parts)
    positive = torch.nn.functional.pad(levels.to(torch.int8) + 2 ** (bits - 1), (0, -levels.shape[1] % parts))
    positive = positive.view(torch.uint8)
    packed = positive[:, :n].clone()
    for j in range(1, parts):
        packed |= positive[:, j * n : (j + 1) * n] << (j * bits)
    return packed


def _unpack(packed: Tensor, d: int, bits: int) -> Tensor:
    """What `_pack` was given: int16 or int8 [rows, d]."""
    if bits >= 8:
        return packed
    parts = [(packed >> (j * bits)) & (2**bits - 1) for j in range(8 // bits)]
    return torch.cat(parts, dim=1)[:, :d].view(torch.int8).sub_(2 ** (bits - 1))
