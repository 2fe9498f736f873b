"""Objectives and metrics: named losses to minimise, and named scores to monitor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A score to monitor in addition to the loss: `function(output, target)`, the mean over the batch, as a scalar."""

    name: str
    function: Callable[[Any, Any], Tensor]
    higher_is_better: bool = True


def _accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=1) == target).to(torch.float64).mean()


accuracy = Metric("accuracy", _accuracy)
"""The share of samples whose largest output is the target class: outputs [B, C], targets int64 [B]."""


@dataclass(frozen=True)
class Objective:
    """One of the M objectives: a name, a loss `loss(output, target) -> scalar` (the mean over the batch), metrics.

    If outputs or targets are a tuple or list of M entries, an objective gets the entry at its index; if they are a
    dict, the entry with its name; anything else is passed whole to every objective.

    >>> from torch import nn
    >>> Objective("digit", nn.functional.cross_entropy, metrics=[accuracy]).name
    'digit'
    """

    name: str
    loss: Callable[[Any, Any], Tensor]
    metrics: Sequence[Metric] = ()

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ValueError(f"an objective's name must be a non-empty string, but got {self.name!r}")
        if not callable(self.loss):
            raise TypeError(f"the loss of objective {self.name!r} must be callable, but got {type(self.loss).__name__}")
        for metric in self.metrics:
            if not isinstance(metric, Metric):
                raise TypeError(
                    f"metrics of objective {self.name!r} must be fedcmoo.Metric(name, function) objects, "
                    f"but got {type(metric).__name__}"
                )
