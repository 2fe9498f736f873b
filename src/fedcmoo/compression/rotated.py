"""An unbiased code with few bits per entry after a random rotation, and adaptive bit allocation."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcmoo.compression.allocation import Blocks, Levels
from fedcmoo.compression.base import Compressor, Shape
from fedcmoo.compression.normal_codes import CODES
from fedcmoo.compression.rotation import Rotation, block_size
from fedcmoo.messages import BadMessageError, Field, Message, check

SEED_BYTES = 8
BLOCK_BYTES = 3
"""Bytes of a block's scale and of its code number."""
INFINITY = 0x7F80
"""The upper half of an infinite float32; finite positive numbers have smaller ones, all others larger ones."""
LEAST_SIGMA = 1e-30
"""A lower bound that avoids a special case for blocks of zeros."""


@dataclass(frozen=True)
class Rotated(Compressor):
    """Rotates each row at random, and codes the rotated entries, which are close to normal, in blocks of 2048.

    With z = R x a block's rotated entries and q their decoded codewords, the block decodes to R^T (s q) with

        s = ||z||² / <z, q>

    so that <x, x'> = ||x||² whatever the rotation. The component of x' orthogonal to x has no preferred direction and
    averages out: the code is unbiased (EDEN). With one bit per entry or more, a codeword is a level of the optimal
    quantizer for normal numbers; with less, it is the position and sign of the largest entry of a group.

    Blocks with a larger part of ||x||² get more bits. Starting from the cheapest code for all, the step to a better
    code with the largest reduction of the expected error per byte is taken repeatedly until the budget is spent.
    Updates vary strongly over a model's layers, so this is much better than equal bits for all.

    A row is sent as its seed (8 bytes), and for each block a scale (2 bytes, rounded at random without bias), the
    number of its code (1 byte) and its codewords.

    Args:
        adaptive: give more bits to blocks with more energy. If False, the bits are as equal as the budget allows,
            and ||x' - x||² / ||x||² is 0.571, 0.133, 0.036 and 0.0096 on average with 1, 2, 3 and 4 bits.

    References:
        Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher. DRIVE: one-bit distributed mean
        estimation. NeurIPS 2021.
        Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher. EDEN: communication-efficient and robust
        distributed mean estimation for federated learning. ICML 2022.
        Shoham and Gersho. Efficient bit allocation for an arbitrary set of quantizers. IEEE Transactions on Acoustics,
        Speech, and Signal Processing, 1988.
    """

    unbiased: ClassVar[bool] = True

    adaptive: bool = True

    @property
    def adapts_to_blocks(self) -> bool:
        return self.adaptive

    def least(self, shape: Shape) -> int:
        M, d = shape
        blocks = _blocks(d)
        return M * (_overhead(blocks) + blocks.nbytes(blocks.lowest))

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        M, d = h.shape
        size = self._row_bytes((M, d), budget)
        return Message(code=torch.stack([self._encode_row(row.float().cpu(), size, random) for row in h]))

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        M, d = shape
        check(payload, {"code": Field((M, self._row_bytes(shape, budget)), torch.uint8)}, sender)
        return torch.stack([_decode_row(row.numpy(), d, sender) for row in payload["code"]])

    def _row_bytes(self, shape: Shape, budget: int) -> int:
        self.check_budget(shape, budget)
        M, d = shape
        blocks = _blocks(d)
        return min(budget // M, _overhead(blocks) + blocks.nbytes(-1))

    def _encode_row(self, x: Tensor, size: int, random: torch.Generator) -> Tensor:
        """Encode x [d] as `size` bytes."""
        blocks = _blocks(len(x))
        seed = torch.randint(2**63 - 1, (1,), generator=random)
        z = blocks.split(Rotation(len(x), int(seed))(x))
        lengths = torch.from_numpy(blocks.lengths)
        energy = torch.linalg.vector_norm(z, dim=1, dtype=torch.float64).square()
        worth = energy if self.adaptive else lengths.double()
        levels = blocks.allocate(worth.numpy(), size - _overhead(blocks))
        sigma = (energy / lengths).sqrt()
        normal = (z / sigma.clamp(min=LEAST_SIGMA).float()[:, None]).numpy()
        kept, codewords = np.empty(len(z), np.float32), []
        for rows, code, nbytes in blocks.pieces(levels):
            words, kept[rows] = code.encode(normal[rows])
            codewords.append(_pack(words, code.bits)[:, :nbytes].ravel())
        scale = sigma * lengths / torch.from_numpy(kept).clamp(min=LEAST_SIGMA)  # ||z||² / <z, q>
        parts = [seed.numpy(), _upper_half(scale.float(), random), levels, *codewords]
        content = np.concatenate([part.view(np.uint8) for part in parts])
        return torch.from_numpy(np.pad(content, (0, size - len(content))))


def _decode_row(row: NDArray[np.uint8], d: int, sender: str) -> Tensor:
    """Decode the bytes of `_encode_row`, [d]."""
    blocks = _blocks(d)
    n = len(blocks.lengths)
    seed, halves, levels, codewords = np.split(row, [SEED_BYTES, SEED_BYTES + 2 * n, _overhead(blocks)])
    _check_header(seed.view("<i8"), halves.view("<u2"), levels, blocks, len(codewords), sender)
    z, start = np.empty((n, blocks.B), np.float32), 0
    for rows, code, nbytes in blocks.pieces(levels):
        packed = codewords[start : start + len(rows) * nbytes].reshape(len(rows), nbytes)
        z[rows] = code.decode(_unpack(packed, blocks.B // code.entries, code.bits))
        start += packed.size
    scale = halves.view("<u2").astype(np.uint32) << np.uint32(16)
    z *= scale.view(np.float32)[:, None]
    return Rotation(d, int(seed.view("<i8")[0])).inverse(torch.from_numpy(z.reshape(-1)[:d]))


def _check_header(
    seed: NDArray[np.int64], halves: NDArray[np.uint16], levels: Levels, blocks: Blocks, room: int, sender: str
) -> None:
    if seed[0] < 0:
        raise BadMessageError(f"{sender}: 'code' must have a seed that is not negative, but it is {seed[0]}")
    if halves.max() >= INFINITY:
        raise BadMessageError(f"{sender}: 'code' must have finite scales that are not negative, but one is not")
    if not blocks.lowest <= levels.min() <= levels.max() < len(CODES):
        raise BadMessageError(
            f"{sender}: 'code' must name codes from {blocks.lowest} to {len(CODES) - 1}, "
            f"but they are from {levels.min()} to {levels.max()}"
        )
    if blocks.used(levels) > room:
        raise BadMessageError(
            f"{sender}: 'code' must have codewords of at most {room} bytes, but names codes of {blocks.used(levels)}"
        )


@lru_cache(maxsize=8)
def _blocks(d: int) -> Blocks:
    return Blocks(d, block_size(d))


def _overhead(blocks: Blocks) -> int:
    """The bytes of a row that are not codewords."""
    return SEED_BYTES + BLOCK_BYTES * len(blocks.lengths)


def _upper_half(values: Tensor, random: torch.Generator) -> NDArray[np.uint16]:
    """Round positive float32 numbers at random, without bias, to the upper 16 of their 32 bits."""
    noise = torch.randint(2**16, values.shape, generator=random, dtype=torch.int32)
    return ((values.view(torch.int32) + noise) >> 16).numpy().astype("<u2")


def _pack(codewords: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """Pack rows of codewords [n, m] as bytes [n, ceil(m · bits / 8)], the lowest bit of the first codeword first."""
    if bits == 8:
        return codewords.astype(np.uint8)
    digits = (codewords[:, :, None] >> np.arange(bits, dtype=np.int32)) & 1
    return np.packbits(digits.astype(np.uint8).reshape(len(codewords), -1), axis=1, bitorder="little")


def _unpack(packed: NDArray[np.uint8], m: int, bits: int) -> NDArray[np.int32]:
    """The inverse of `_pack`, [n, m]; missing bytes count as zero."""
    digits = np.zeros((len(packed), m * bits), np.uint8)
    found = np.unpackbits(packed, axis=1, bitorder="little")[:, : m * bits]
    digits[:, : found.shape[1]] = found
    return digits.reshape(len(packed), m, bits) @ (1 << np.arange(bits, dtype=np.int32))
