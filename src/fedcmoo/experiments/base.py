"""The interface of ready-made problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedcmoo.data.skew import Skew
from fedcmoo.problem import Problem


class ReadyProblem(Protocol):
    """Frozen settings that build a `Problem`; `title` is its line in `fedcmoo list`."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, **settings: Any) -> None: ...

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The label skew over clients of `build` with the same arguments."""

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem; the seed determines validation split, partition and initial model."""
