"""The interface of compressors: matrix -> payload -> matrix, within a budget of bytes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcmoo.messages import BadMessageError, Field, Message, all_finite
from fedcmoo.validation import check_literals

Shape = tuple[int, int]
"""The shape (M, d) of a Jacobian with one gradient per row."""

NUMBER = 4
"""Bytes per number of a budget, since budgets are counted in float32 numbers."""


BLOCK = 2**20
"""The number of entries processed at a time if a copy of a whole Jacobian would be too large."""


def row_blocks(M: int, d: int) -> Iterator[slice]:
    """The rows of [M, d] in groups of about `BLOCK` entries."""
    step = max(1, BLOCK // d)
    for start in range(0, M, step):
        yield slice(start, start + step)


def check_budget(budget: float) -> None:
    """Raise unless a budget is a positive number."""
    if not 0 < budget < math.inf:
        raise ValueError(f"budget must be positive and finite (1 is one model's worth of numbers), but got {budget}")


def budget_bytes(budget: float, d: int) -> int:
    """Convert a budget in multiples of d numbers to bytes."""
    return math.floor(budget * d) * NUMBER


class Compressor(ABC):
    """Compresses a Jacobian to a payload of bounded size.

    The sizes of a payload's arrays depend only on shape and budget, so the receiver knows what to expect. `unbiased`
    says that the decoded matrix equals the encoded one in expectation.
    """

    unbiased: ClassVar[bool]

    @property
    def adapts_to_blocks(self) -> bool:
        """Whether the error is smaller if entries of similar size are neighbours."""
        return False

    @abstractmethod
    def least(self, shape: Shape) -> int:
        """The smallest budget, in bytes, that is enough for a matrix of this shape."""

    @abstractmethod
    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        """Encode the matrix h [M, d] as arrays of at most `budget` bytes. h is not modified.

        Args:
            h: a floating-point matrix, possibly a view; no copy of its size is made.
            budget: in bytes.
            random: the generator for compressors that use randomness.
        """

    def decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        """Check and decode the payload of a matrix of this shape, and return the approximation, float32 [M, d].

        Raises:
            BadMessageError: naming the sender and the field, if the payload is not one that `encode` can make.
        """
        h = self._decode(payload, shape, budget, sender)
        if not all_finite(h):  # products of finite arrays can be infinite
            raise BadMessageError(f"{sender}: {sorted(payload)} must decode to finite numbers, but decode to others")
        return h

    @abstractmethod
    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        """`decode` without the check that its result is finite."""

    def check_budget(self, shape: Shape, budget: int) -> None:
        """Raise unless the budget is enough; the error names the setting."""
        if budget < self.least(shape):
            M, d = shape
            raise ValueError(
                f"budget must be at least {self.least(shape) / (NUMBER * d):.2g} for {type(self).__name__} "
                f"of {M} gradients of {d} entries, but got {budget / (NUMBER * d):.2g}"
            )


@dataclass(frozen=True)
class FloatCompressor(Compressor):
    """A compressor that sends some of its numbers as floats.

    Args:
        values: "float32", or "float16" for twice as many values of less precision in the same budget. These are sent
            relative to the largest one, so that gradients of any size can be represented.
    """

    values: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        check_literals(self)

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the values as they are sent."""
        return torch.float32 if self.values == "float32" else torch.float16

    @property
    def overhead(self) -> int:
        """Bytes sent in addition to the values."""
        return 0 if self.values == "float32" else NUMBER

    def pack(self, name: str, values: Tensor) -> dict[str, Tensor]:
        """The arrays that represent `values`."""
        if self.values == "float32":
            return {name: values.float()}
        scale = values.abs().amax().float()
        scale = torch.where(scale > 0, scale, 1.0)
        return {name: (values / scale).half(), "scale": scale.reshape(1)}

    def fields(self, name: str, shape: tuple[int, ...]) -> dict[str, Field]:
        """The arrays that `pack` makes from values of this shape."""
        scale = {} if self.values == "float32" else {"scale": Field((1,))}
        return {name: Field(shape, self.dtype), **scale}

    def unpack(self, name: str, payload: Mapping[str, Tensor]) -> Tensor:
        """The values that `pack` was given, as float32."""
        values = payload[name].float()
        return values * payload["scale"] if "scale" in payload else values


def shared_words(seed: int, n: int) -> NDArray[np.uint64]:
    """n random 64-bit words determined by the seed: the same on every platform and device, for any number of threads.

    >>> shared_words(7, 2).tolist()
    [11530976094092348043, 16550673365885938325]
    """
    return np.random.PCG64(seed).random_raw(n)  # type: ignore[return-value, no-any-return, unused-ignore]


def random_signs(words: NDArray[np.uint64], n: int) -> Tensor:
    """n signs ±1 from the bits of random words, float32 [n]; each word has 64."""
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), count=n)
    return torch.from_numpy(bits).float().mul_(2).sub_(1)
