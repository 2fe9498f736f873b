"""Which model may replace the one before it: a round whose result is ruined is undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch

from fedcmoo.history import Record
from fedcmoo.rounds import Server
from fedcmoo.validation import at_least_one, positive


@dataclass(frozen=True)
class Acceptance:
    """What a round makes of the server must be finite, and the norms of parameters and buffers within a bound.

    One reply may be finite, of the right shape, and so large that no client can compute anything with the mean. Such a
    round counts, and its record says why it was undone, but model, weights and memory are those from before it.

    Args:
        max_norm: the largest ‖x‖ and ‖buffers‖. The default is where float32 has no decimals left; with a bound that
            fits the model, smaller damage is noticed too.
        patience: how many rounds in a row may be undone; with one more, the run ends.

    >>> Acceptance(max_norm=100.0).patience
    3
    """

    max_norm: float = 1e8
    patience: int = 3

    def __post_init__(self) -> None:
        positive(max_norm=self.max_norm)
        at_least_one(patience=self.patience)

    def objection(self, server: Server) -> str | None:
        """Why the server's state cannot be accepted; None if it can."""
        for name, values in (("weights", server.w), ("Gram matrix", server.G)):
            if values is not None and not np.isfinite(values).all():
                return f"the {name} must be finite, but got {values.tolist()}"
        for name, array in (("the model", server.x), ("the buffers", server.buffers)):
            # The norm of a float32 vector may overflow where no entry does.
            norm = torch.linalg.vector_norm(array, dtype=torch.float64).item()
            if not norm <= self.max_norm:
                return f"the norm of {name} must be finite and at most {self.max_norm:g}, but is {norm:g}"
        return None


def undone_in_a_row(history: Sequence[Record]) -> int:
    """How many of the last rounds were undone, one after the other."""
    return sum(1 for _ in takewhile(lambda record: record.undone is not None, reversed(history)))


ACCEPTANCES: dict[str, type[Acceptance]] = {"bounded": Acceptance}
