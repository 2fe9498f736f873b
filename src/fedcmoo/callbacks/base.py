"""Callbacks: everything in a run that is not the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fedcmoo.history import Record
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem
from fedcmoo.result import Result
from fedcmoo.rounds import Server


@dataclass(frozen=True)
class Training:
    """What a callback may look at, from the start of a run on.

    Attributes:
        problem, method, rounds: what is run.
        history: the rounds that are done.
        folder: of the run; None if nothing is written.
        server: its state, which every round changes.
    """

    problem: Problem
    method: Method
    rounds: int
    history: Sequence[Record]
    folder: Path | None
    server: Server

    def model(self) -> nn.Module:
        """A copy of the problem's model with the parameters that it has now; private ones are as at the start."""
        model = self.problem.flat_model()
        model.load(self.server.model)
        return model.module


class Callback:
    """Override what you need.

    >>> class Watch(Callback):
    ...     def after_round(self, record: Record) -> bool:
    ...         return record.grad_norm_sq is not None and record.grad_norm_sq < 1e-6
    """

    def on_start(self, training: Training) -> None:
        """Before the first round, or the first one after a resume: `training.history` has those before it."""

    def after_round(self, record: Record) -> bool | None:
        """After each round. Return True to end the run here."""

    def on_end(self, result: Result) -> None:
        """After the last round; not after an error or Ctrl-C."""

    def close(self) -> None:
        """At the very end, whatever happened."""
