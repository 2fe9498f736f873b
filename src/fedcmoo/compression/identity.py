"""No compression."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.compression.base import FloatCompressor, Shape
from fedcmoo.messages import Message, check


@dataclass(frozen=True)
class Identity(FloatCompressor):
    """Sends the matrix as it is, at M·d values whatever the budget: the reference for the others.

    >>> h = torch.tensor([[1.0, 2.0]])
    >>> payload = Identity().encode(h, budget=8, random=torch.Generator())
    >>> Identity().decode(payload, (1, 2), budget=8, sender="client 0").tolist()
    [[1.0, 2.0]]
    """

    unbiased: ClassVar[bool] = True

    def least(self, shape: Shape) -> int:
        return 0

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        return Message(**self.pack("h", h))

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        check(payload, self.fields("h", shape), sender)
        return self.unpack("h", payload)
