"""An unbiased stochastic quantizer similar to QSGD."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import NUMBER, Compressor, Shape, row_blocks
from fedcmoo.messages import BadMessageError, Field, Message, check

GROUP = 256
"""The number of entries that share a grid: smaller groups adapt better to the entries' size, larger ones cost less."""
WIDTHS = (16, 8, 4, 2)
LEAST_STEP = 1e-30
"""A lower bound that avoids a special case for groups of zeros."""


@dataclass(frozen=True)
class Quantizer(Compressor):
    """Rounds each entry at random to one of its two neighbours on a grid, without bias (up to 2^-10 of the grid's step
    with 16 bits, 2^-17 with fewer).

    The entries of a row are taken in groups of 256. With b bits the grid of a group has the levels -s, …, s,
    s = 2^(b-1) - 1, times a step that puts the group's largest magnitude at its end (within 2^-20). QSGD uses the norm
    of the whole vector instead and codes the many resulting zeros; the smaller grid needs no such code and has less
    variance at a fixed width. b is the largest of 16, 8, 4 and 2 that the budget allows.

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

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        return dequantize(payload, shape, self._width(shape, budget), sender)

    def _width(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        return next(bits for bits in WIDTHS if quantized_bytes(shape, bits) <= budget)


def quantized_bytes(shape: Shape, bits: int) -> int:
    """The size in bytes of the result of `quantize`."""
    M, d = shape
    return M * (-(-d * bits // 8) + _groups(d) * NUMBER)


def quantized_length(row_bytes: int, bits: int) -> int:
    """The number of entries of `bits` bits that fit into a row of the given bytes, in whole groups if at least one
    fits; floats (32 bits) have no groups."""
    if bits == 32:
        return row_bytes // NUMBER
    groups = row_bytes // (GROUP * bits // 8 + NUMBER)
    return groups * GROUP or max(0, (row_bytes - NUMBER) * 8 // bits)


def quantize(h: Tensor, bits: int, random: torch.Generator, rounded: Tensor | None = None) -> Message:
    """Quantize the rows of h [M, d] to `bits` bits per entry, without bias: `levels` and `step` [M, groups].

    Only a few rows are in memory at a time, besides the result. If `rounded` (contiguous, possibly h itself) is given,
    the dequantized values are written to it.
    """
    M, d = h.shape
    parts = [_quantize(h[rows], bits, random, None if rounded is None else rounded[rows]) for rows in row_blocks(M, d)]
    return parts[0] if len(parts) == 1 else Message(**{n: torch.cat([part[n] for part in parts]) for n in parts[0]})


def _quantize(h: Tensor, bits: int, random: torch.Generator, rounded: Tensor | None) -> Message:
    # As few operations as possible: for a small model, their number determines the cost.
    rows, d = h.shape
    padding = -d % GROUP
    groups = (torch.nn.functional.pad(h, (0, padding)) if padding else h).float().view(rows, -1, GROUP)
    step = groups.abs().amax(dim=2, keepdim=True).div_(_reach(bits)).add_(LEAST_STEP)
    levels = groups.div(step).add_(_noise(groups.shape, random).to(h.device), alpha=2**-16).round_()
    message = Message(levels=_pack(levels.view(rows, -1), d, bits), step=step.view(rows, -1))
    if rounded is not None and padding:
        rounded.copy_(levels.mul_(step).view(rows, -1)[:, :d])
    elif rounded is not None:  # in one operation
        torch.mul(levels, step, out=rounded.view(levels.shape))
    return message


def _noise(shape: torch.Size, random: torch.Generator) -> Tensor:
    """Uniform integers from -2^15 to 2^15 - 1, int16, four from each word drawn."""
    words = torch.empty(shape.numel() // 4, dtype=torch.int64).random_(-(2**63), None, generator=random)
    return words.view(torch.int16).view(shape)


def dequantize(payload: Message, shape: Shape, bits: int, sender: str) -> Tensor:
    """Check and decode the result of `quantize`, and return float32 [M, d]."""
    M, d = shape
    check(payload, {"levels": _levels_field(shape, bits), "step": Field((M, _groups(d)))}, sender)
    step, s = payload["step"], _largest_level(bits)
    if step.amin() < 0 or not math.isfinite(step.amax().mul(s).item()):  # the largest entry must be finite too
        raise BadMessageError(
            f"{sender}: 'step' must be from 0 to the largest float32 / {s}, "
            f"but is from {step.amin().item()} to {step.amax().item()}"
        )
    h = torch.zeros(M, _groups(d) * GROUP)
    for rows in row_blocks(M, d):
        levels = _unpack(payload["levels"][rows], d, bits)
        if levels.amin() < -s:
            raise BadMessageError(f"{sender}: 'levels' must be from -{s} to {s}, but has {int(levels.amin())}")
        h[rows, :d] = levels
        h[rows].view(-1, _groups(d), GROUP).mul_(step[rows, :, None])
    return h[:, :d]


def _largest_level(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


def _reach(bits: int) -> float:
    """The position of a group's largest entry on the grid: just inside its end, so that no level is beyond it."""
    return _largest_level(bits) * (1 - 2**-20)


def _groups(d: int) -> int:
    return -(-d // GROUP)


def _levels_field(shape: Shape, bits: int) -> Field:
    M, d = shape
    return Field((M, d), torch.int16) if bits == 16 else Field((M, -(-d * bits // 8)), torch.int8)


def _pack(levels: Tensor, d: int, bits: int) -> Tensor:
    """Pack the first d of the integers [rows, d or more] as int16, or as int8 with 8 / bits of them each.

    A row is cut into 8 / bits parts of n entries, and byte t holds entry t of each part as a digit from -s to s of a
    number with base 2^bits, the first part's lowest.
    """
    if bits == 16:
        return levels[:, :d].to(torch.int16)
    n = -(-d * bits // 8)
    packed = levels[:, :n]
    for j in range(1, 8 // bits):
        packed = torch.add(packed, levels[:, j * n : (j + 1) * n], alpha=2 ** (j * bits))  # exact: small numbers
    return packed.to(torch.int8)


def _unpack(packed: Tensor, d: int, bits: int) -> Tensor:
    """The inverse of `_pack`: int16 or int8 [rows, d]."""
    if bits >= 8:
        return packed
    half, digits = 2 ** (bits - 1), []
    packed = packed.to(torch.int16)
    for _ in range(8 // bits):
        digit = ((packed + half) & (2**bits - 1)) - half
        digits.append(digit)
        packed = (packed - digit) >> bits
    return torch.cat(digits, dim=1)[:, :d]
