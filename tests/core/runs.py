"""Runs that are compared, and runs that are interrupted."""

from __future__ import annotations

import torch

from fedcmoo import Callback, Result
from fedcmoo.history import Record


def assert_same(mine: Result, *others: Result) -> None:
    """Equal bits in all rounds and in the model; only the times may differ."""
    for other in others:
        assert [r.without_time() for r in mine.history] == [r.without_time() for r in other.history]
        for a, b in zip(mine.model.state_dict().values(), other.model.state_dict().values(), strict=True):
            assert torch.equal(a, b)


class Interrupt(Callback):
    """Ctrl-C after some round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def after_round(self, record: Record) -> None:
        if record.round == self.after:
            raise KeyboardInterrupt
