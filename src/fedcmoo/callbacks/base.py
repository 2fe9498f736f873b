"""The interface of callbacks."""

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
    """The state of a run that callbacks can read.

    Attributes:
        problem, method, rounds: what is run.
        history: the rounds that are done.
        folder: the run's folder; None if nothing is written.
        server: the server's state, which changes every round.
    """

    problem: Problem
    method: Method
    rounds: int
    history: Sequence[Record]
    folder: Path | None
    server: Server

    def model(self, client: int | None = None) -> nn.Module:
        """A copy of the problem's model with the current parameters.

        Args:
            client: the client whose private parameters to use; if None, or if the client never trained, the initial
                ones.
        """
        model, state = self.problem.flat_model(), self.server.model
        kept = self.server.client_states.get(-1 if client is None else client, Message())
        if self.server.sizes.private and DIGEST in kept:
            raise ValueError(f"the private parameters of client {client} are on its own node, not at the server")
        own = kept.part(PRIVATE)
        model.load(state.joined(State(**own)) if own else state)
        return model.module


class Callback:
    """Base class of callbacks: override the methods you need.

    >>> class Watch(Callback):
    ...     def after_round(self, record: Record) -> bool:
    ...         return record.grad_norm_sq is not None and record.grad_norm_sq < 1e-6
    """

    def on_start(self, training: Training) -> None:
        """Called before the first round, or the first after a resume; `training.history` has the earlier rounds."""

    def after_round(self, record: Record) -> bool | None:
        """Called after each round. Return True to end the run."""

    def on_end(self, result: Result) -> None:
        """Called after the last round, but not after an error or Ctrl-C."""

    def close(self) -> None:
        """Called at the very end, also after errors."""
