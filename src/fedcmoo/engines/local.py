"""The engine in the same process: clients take turns on one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcmoo.contributions import Channels
from fedcmoo.engines.base import BlockSession
from fedcmoo.parameters import Precision, State, check_device, check_precision
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes, Sums
from fedcmoo.worker import Job, Worker


@dataclass(frozen=True)
class Local:
    """Everything in this process.

    On Linux, training tells the C library to keep freed memory for the next allocation, up to a gigabyte; this stays so
    when the run has ended. Engines with processes of their own leave this one's settings alone.

    Args:
        threads: of torch's operators. One by default, as in every worker of every engine, so that all of them give
            the same bits.
        device: where the model computes.
        precision: "bfloat16" for automatic mixed precision, where the hardware has it.
    """

    threads: int = 1
    device: str = "cpu"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, but got {self.threads}")
        check_device(self.device)
        check_precision(self.precision, self.device)

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> LocalSession:
        return LocalSession(problem, channels, seed, self)


class LocalSession(BlockSession):
    """One worker in this process."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, settings: Local) -> None:
        self.worker = Worker(problem, channels, seed, settings.device, settings.precision)
        super().__init__(problem, settings.threads)

    def run(self, jobs: Sequence[Job], state: State) -> Iterator[Sums]:
        for job in jobs:
            yield job.run(self.worker, state)
