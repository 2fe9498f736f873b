"""An unbiased stochastic quantizer in the manner of QSGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import NUMBER, Compressor, Shape
from fedcmoo.messages import BadMessageError, Field, Message, check

GROUP = 256
"""Entries that share a scale: fewer follow the entries' size more closely, more cost less."""
WIDTHS = (16, 8, 4, 2)


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

    One row is in memory at a time, beside the result.
    """
    M, d = h.shape
    s = 2 ** (bits - 1) - 1
    scale = h.new_empty(M, _groups(d), dtype=torch.float32)
    levels = []
    for k, row in enumerate(h):
        groups = torch.nn.functional.pad(row.float(), (0, _groups(d) * GROUP - d)).view(-1, GROUP)
        scale[k] = groups.abs().amax(dim=1)
        divisor = torch.where(scale[k] > 0, scale[k], 1.0)[:, None]
        noise = torch.rand(groups.shape, generator=random).to(h.device)
        # The clamp guards against x / scale rounding up to more than 1.
        rounded = (groups / divisor * s).add_(noise).floor_().clamp_(-s, s).view(-1)[:d]
        levels.append(_pack(rounded, bits))
    return Message(levels=torch.stack(levels), scale=scale)


def dequantize(payload: Message, shape: Shape, bits: int, sender: str) -> Tensor:
    """Check what `quantize` made, and return float32 [M, d]."""
    M, d = shape
    fields = {"levels": _levels_field(shape, bits), "scale": Field((M, _groups(d)))}
    check(payload, fields, sender)
    if payload["scale"].amin() < 0:
        raise BadMessageError(f"{sender}: 'scale' must not be negative, but has {payload['scale'].amin().item()}")
    s = 2 ** (bits - 1) - 1
    h = torch.empty(M, d)
    for k in range(M):
        levels = _unpack(payload["levels"][k], d, bits)
        if levels.abs().amax() > s:
            raise BadMessageError(f"{sender}: 'levels' must be from -{s} to {s}, but has {int(levels.min())}")
        step = payload["scale"][k] / s
        h[k] = levels.mul_(step.repeat_interleave(GROUP)[:d])
    return h


def _groups(d: int) -> int:
    return -(-d // GROUP)


def _levels_field(shape: Shape, bits: int) -> Field:
    M, d = shape
    return Field((M, d), torch.int16) if bits == 16 else Field((M, -(-d * bits // 8)), torch.uint8)


def _pack(levels: Tensor, bits: int) -> Tensor:
    """Whole numbers [d] as int16, or as bytes of 8 / bits numbers each."""
    if bits == 16:
        return levels.to(torch.int16)
    per_byte = 8 // bits
    shifted = (levels + 2 ** (bits - 1)).to(torch.uint8)
    columns = torch.nn.functional.pad(shifted, (0, -len(shifted) % per_byte)).view(-1, per_byte)
    packed = columns[:, 0].clone()
    for j in range(1, per_byte):
        packed |= columns[:, j] << (j * bits)
    return packed


def _unpack(packed: Tensor, d: int, bits: int) -> Tensor:
    """What `_pack` was given, as float32 [d]."""
    if bits == 16:
        return packed.float()
    mask, per_byte = 2**bits - 1, 8 // bits
    columns = torch.stack([(packed >> (j * bits)) & mask for j in range(per_byte)], dim=1)
    return columns.view(-1)[:d].float().sub_(2 ** (bits - 1))
