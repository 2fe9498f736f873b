"""Wrappers that time contributions and compressors."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import Compressor, Shape
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Sizes

T = TypeVar("T")


@dataclass
class Clock:
    """A clock that adds up seconds."""

    seconds: float = 0.0

    def time(self, work: Callable[[], T], timer: Callable[[], float] = time.perf_counter) -> T:
        """Time a block, and add its seconds."""
        start = timer()
        result = work()
        self.seconds += timer() - start
        return result


@dataclass(frozen=True)
class Timed(Contribution):
    """Wraps a contribution with a clock that runs while a client computes and encodes it."""

    contribution: Contribution
    clock: Clock

    def compute(self, client: Client, message: Message) -> Arrays:
        return self.clock.time(lambda: self.contribution.compute(client, message))

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return self.contribution.fields(sizes)

    def encode(self, arrays: Arrays, client: Client) -> Message:
        return self.clock.time(lambda: self.contribution.encode(arrays, client))

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        return self.contribution.decode(payload, sizes, sender)


@dataclass(frozen=True)
class TimedCompressor(Compressor):
    """Wraps a compressor with a clock of processor seconds that runs while it encodes or decodes."""

    compressor: Compressor
    clock: Clock

    unbiased: ClassVar[bool] = False  # not asked for here

    @property
    def adapts_to_blocks(self) -> bool:
        return self.compressor.adapts_to_blocks

    def least(self, shape: Shape) -> int:
        return self.compressor.least(shape)

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        return self.clock.time(lambda: self.compressor.encode(h, budget, random), time.process_time)

    def _decode(self, payload: Message, shape: Shape, budget: int, sender: str) -> Tensor:
        return self.clock.time(lambda: self.compressor.decode(payload, shape, budget, sender), time.process_time)
