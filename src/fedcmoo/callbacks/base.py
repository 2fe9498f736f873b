"""Callbacks: everything in a run that is not the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fedcmoo.history import Record
from fedcmoo.messages import DIGEST, Message
from fedcmoo.methods.base import Method
from fedcmoo.parameters import State
from fedcmoo.problem import Problem
from fedcmoo.result import Result
from fedcmoo.rounds import Server
from fedcmoo.worker import PRIVATE


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

    def model(self, client: int | None = None) -> nn.Module:
        """A copy of the problem's model with the parameters that it has now.

        Args:
            client: whose private parameters it has; with None, or if the client never trained, they are as at the
                start.
        """
        model, state = self.problem.flat_model(), self.server.model
        kept = self.server.client_states.get(-1 if client is None else client, Message())
        if self.server.sizes.private and DIGEST in kept:
            raise ValueError(f"the private parameters of client {client} are on its own node, not at the server")
        own = kept.part(PRIVATE)
        model.load(state.joined(State(**own)) if own else state)
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
