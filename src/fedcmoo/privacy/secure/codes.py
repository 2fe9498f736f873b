"""Codes of clients' replies: words that add up modulo 2^b, masked, summed and decoded in place of the arrays."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.compression.shared_grid import REACH, SharedGrid
from fedcmoo.contributions import Channels
from fedcmoo.messages import Field, Message
from fedcmoo.privacy.clipping import l2_norm
from fedcmoo.privacy.secure.masks import Words
from fedcmoo.privacy.secure.stage import Secure
from fedcmoo.randomness import derive
from fedcmoo.rounds import Sizes

EXACT_BITS = 64
"""The number of bits per entry of small arrays that need more than one grid: products of gradients, and losses."""

FLOAT_ERROR = 1e-6
"""An upper bound on what rotations in float32 add to a norm of 1."""

LARGEST = 1e4
"""The largest norm of arrays that may not be clipped: losses."""


@dataclass(frozen=True)
class Part:
    """Some arrays of a reply, concatenated and rounded to a grid.

    Each further grid codes the rounding error of the previous one.

    Attributes:
        fields: the arrays, by their names in the reply.
        grids: the grids; the bound of the first one is that of the arrays' joint norm.
        clippable: whether longer arrays are scaled down; otherwise they are an error.
    """

    fields: Mapping[str, Field]
    grids: Sequence[SharedGrid]
    clippable: bool

    @property
    def count(self) -> int:
        """The number of words of the code."""
        return sum(grid.d for grid in self.grids)

    def encode(self, reply: Message, random: torch.Generator) -> Tensor:
        """The code of one client, int64 [count]."""
        x = self._shortened(torch.cat([reply[name].flatten().float() for name in self.fields]))
        codes = [self.grids[0].encode(x, random)]
        for coarse, fine in zip(self.grids, self.grids[1:], strict=False):
            x = x - coarse.decode(codes[-1])
            codes.append(fine.encode(x, random))
        return torch.cat(codes)

    def decode(self, total: Tensor) -> dict[str, Tensor]:
        """The sums of the arrays, from the sum of the codes, int64 [count]."""
        parts = torch.split(total, [grid.d for grid in self.grids])
        x = sum((grid.decode(part) for grid, part in zip(self.grids, parts, strict=True)), torch.zeros(()))
        pieces = torch.split(x, [_size(field) for field in self.fields.values()])
        return {
            name: piece.to(field.dtype).reshape([int(n or 0) for n in field.shape])
            for (name, field), piece in zip(self.fields.items(), pieces, strict=True)
        }

    def _shortened(self, x: Tensor) -> Tensor:
        """x scaled to a bound that leaves room for rounding, so that the decoded contribution of one client is within
        the grid's bound."""
        grid, norm = self.grids[0], l2_norm([x])
        limit = grid.bound * (1 - REACH / grid.levels - FLOAT_ERROR)
        if norm <= limit:
            return x
        if not self.clippable:
            raise ValueError(f"{', '.join(self.fields)} must have a norm of at most {limit:g} in secure sums")
        return x * (limit / norm)


class SumCode:
    """The code of whole replies, in sums of at most n clients: all arrays of the contributions `names`.

    The rotations common to all clients are drawn from the round's seed.
    """

    def __init__(
        self, secure: Secure, channels: Channels, names: Sequence[str], sizes: Sizes, n: int, seed: int
    ) -> None:
        self.secure, self.n, self._seed = secure, n, derive(seed, "rotation", *names) // 2
        self.parts = [part for name in names for part in self._parts(name, channels, sizes)]

    @property
    def count(self) -> int:
        """The number of words of a code."""
        return sum(part.count for part in self.parts)

    def encode(self, reply: Message, random: torch.Generator) -> Words:
        """The code of one client's reply; `random` is for the rounding."""
        return torch.cat([part.encode(reply, random) for part in self.parts]).numpy().astype(np.uint32)

    def decode(self, total: Words) -> dict[str, Tensor]:
        """The sums of the arrays, by name, from the sum of the codes modulo 2^bits."""
        totals = torch.split(torch.from_numpy(total.astype(np.int64)), [part.count for part in self.parts])
        return {
            name: array
            for part, piece in zip(self.parts, totals, strict=True)
            for name, array in part.decode(piece).items()
        }

    def _parts(self, name: str, channels: Channels, sizes: Sizes) -> Iterator[Part]:
        bound = self.secure.bound_of(channels[name])
        fields = {f"{name}/{key}": f for key, f in channels[name].contribution.fields(sizes).items()}
        gradients = {key: field for key, field in fields.items() if field.clippable and field.degree == 1}
        if gradients:
            yield Part(gradients, self._grids(gradients, bound, 1), clippable=True)
        for key, field in fields.items():
            if key not in gradients:
                largest = bound**field.degree if field.clippable else LARGEST
                one = {key: field}
                yield Part(one, self._grids(one, largest, EXACT_BITS // self.secure.bits), field.clippable)

    def _grids(self, fields: Mapping[str, Field], bound: float, count: int) -> list[SharedGrid]:
        d, grids = sum(_size(field) for field in fields.values()), []
        for k in range(count):
            grids.append(SharedGrid(d, self.n, bound, self._seed + 2 * k, self.secure.bits))
            bound = grids[-1].step * math.sqrt(d)  # no rounding error is larger
        return grids


def _size(field: Field) -> int:
    return math.prod(int(n or 0) for n in field.shape)
