"""Callbacks: everything in a run that is not the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcmoo.history import Record
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem
from fedcmoo.result import Result


@dataclass(frozen=True)
class Run:
    """What a callback may look at when a run starts."""

    problem: Problem
    method: Method
    rounds: int
    history: Sequence[Record]


class Callback:
    """Override what you need.

    >>> class Watch(Callback):
    ...     def after_round(self, record: Record) -> bool:
    ...         return record.grad_norm_sq is not None and record.grad_norm_sq < 1e-6
    """

    def on_start(self, run: Run) -> None:
        """Before the first round (or the first after a resume: `run.history` is behind)."""

    def after_round(self, record: Record) -> bool | None:
        """After each round. Return True to end the run here."""

    def on_end(self, result: Result) -> None:
        """After the last round; not after an error or Ctrl-C."""

    def close(self) -> None:
        """At the very end, whatever happened."""
