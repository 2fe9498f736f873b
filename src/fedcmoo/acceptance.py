"""Acceptance rules: a round that results in an unusable model is undone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf

import numpy as np
import torch

from fedcmoo.history import Record
from fedcmoo.problem import Problem
from fedcmoo.rounds import Server
from fedcmoo.validation import at_least_one, positive

ACCEPTED_LOSS = "accepted-loss"
"""The name in the server's memory of the validation loss after the last accepted round."""


@dataclass(frozen=True)
class Acceptance:
    """Require that the model after a round is finite, and the norms of its parameters and buffers are within a bound.

    A reply may be finite and of the right shape, but so large that clients cannot train on the resulting mean. Such a
    round counts, and its record gives the reason why it was undone, but model, weights and memory are restored.

    Args:
        max_norm: the largest ‖x‖ and ‖buffers‖. At the default, float32 has no decimals left; a bound that fits the
            model also detects smaller damage.
        patience: the number of consecutive rounds that may be undone; after one more, the run ends.

    >>> Acceptance(max_norm=100.0).patience
    3
    """

    max_norm: float = 1e8
    patience: int = 3

    def __post_init__(self) -> None:
        positive(max_norm=self.max_norm)
        at_least_one(patience=self.patience)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the rule cannot be applied to a problem."""

    def objection(self, server: Server, loss: Callable[[], float]) -> str | None:
        """The reason why the server's state cannot be accepted; None if it can.

        Args:
            server: the state after the round; a rule's record of accepted rounds is in its memory.
            loss: evaluates the mean of the objectives' losses on validation data.
        """
        for name, values in (("weights", server.w), ("Gram matrix", server.G)):
            if values is not None and not np.isfinite(values).all():
                return f"the {name} must be finite, but got {values.tolist()}"
        for name, array in (("the model", server.x), ("the buffers", server.buffers)):
            # The norm of a float32 vector may overflow even if no entry does.
            norm = torch.linalg.vector_norm(array, dtype=torch.float64).item()
            if not norm <= self.max_norm:
                return f"the norm of {name} must be finite and at most {self.max_norm:g}, but is {norm:g}"
        return None


@dataclass(frozen=True)
class BoundedRise(Acceptance):
    """Require also that the mean validation loss is at most `max_rise` times that of the last accepted round.

    Deviation: the authors of FedCMOO apply this rule to the loss on training data of some clients. A server has no such
    data, and validation data cost clients nothing. Validation data are evaluated in every round.

    Args:
        max_rise: 1.5 in the authors' runs.

    References:
        Askin, Sharma, Joshi and Joe-Wong. Federated Communication-Efficient Multi-Objective Optimization. AISTATS 2025.
    """

    max_rise: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(max_rise=self.max_rise)

    def check(self, problem: Problem) -> None:
        if problem.validation is None:
            raise ValueError("a bound on the rise of the validation loss needs validation data, but there are none")

    def objection(self, server: Server, loss: Callable[[], float]) -> str | None:
        objection = super().objection(server, loss)
        if objection is not None:
            return objection
        before = server.memory[ACCEPTED_LOSS].item() if ACCEPTED_LOSS in server.memory else inf
        now = loss()
        if not now <= self.max_rise * before:
            return f"the mean validation loss must be at most {self.max_rise:g} times {before:g}, but is {now:g}"
        server.memory[ACCEPTED_LOSS] = torch.tensor(now, dtype=torch.float64)
        return None


def undone_in_a_row(history: Sequence[Record]) -> int:
    """The number of consecutive rounds, up to the last one, that were undone."""
    return sum(1 for _ in takewhile(lambda record: record.undone is not None, reversed(history)))


ACCEPTANCES: dict[str, type[Acceptance]] = {"bounded": Acceptance, "bounded-rise": BoundedRise}
