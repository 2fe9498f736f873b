"""Objectives and metrics, named losses to minimise and scores to monitor, and their values on one batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcmoo.data.base import Masked
from fedcmoo.failures import during
from fedcmoo.ownership import is_labelled


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


class BatchLosses:
    """Base class of problems: losses and metrics of its objectives on one batch, in which labels may be missing."""

    objectives: Sequence[Objective]

    @property
    def M(self) -> int:
        """The number of objectives."""
        return len(self.objectives)

    def losses(self, outputs: Any, targets: Any, which: Iterable[int] | None = None) -> list[Tensor]:
        """The scalar losses on one batch, of all objectives or of those with the indices `which`."""
        values = []
        for k in range(self.M) if which is None else which:
            objective = self.objectives[k]
            output, target, labelled = self.labelled(outputs, targets, k)
            with during(f"in the loss of objective {objective.name!r}"):
                # The sum over no samples is zero, as is its gradient.
                loss = output.sum() if labelled == 0 else objective.loss(output, target)
            if not isinstance(loss, Tensor) or loss.ndim != 0:
                shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise ValueError(
                    f"the loss of objective {objective.name!r} must be a scalar tensor, but got {shape}; "
                    "take its mean over the batch"
                )
            if torch.is_grad_enabled() and not loss.requires_grad:
                raise ValueError(
                    f"the loss of objective {objective.name!r} must depend on the model's parameters, but has no "
                    "gradient: it was detached, or was not computed from the model's output with torch"
                )
            values.append(loss)
        return values

    def scores(self, outputs: Any, targets: Any, k: int) -> tuple[dict[str, Tensor], int | None]:
        """The loss and metrics of objective k on one batch, by name, and the number of its samples with a label (None
        for all). Without labels there are no scores."""
        objective = self.objectives[k]
        output, target, labelled = self.labelled(outputs, targets, k)
        if labelled == 0:
            return {}, 0
        values = {"loss": self.losses(outputs, targets, [k])[0]}
        for metric in objective.metrics:
            with during(f"in metric {metric.name!r} of objective {objective.name!r}"):
                value = torch.as_tensor(metric.function(output, target))
            if value.ndim != 0:
                raise ValueError(
                    f"metric {metric.name!r} of objective {objective.name!r} must be a scalar, "
                    f"but got shape {tuple(value.shape)}"
                )
            values[metric.name] = value
        return values, labelled

    def labelled(self, outputs: Any, targets: Any, k: int) -> tuple[Any, Any, int | None]:
        """Outputs and targets of objective k for its labelled samples, and the number of these (None for all)."""
        with during("in the model's outputs"):
            output = self.of(outputs, k)
        with during("in the targets"):
            target = self.of(targets, k)
        if target is None:
            raise ValueError(f"the targets have no entry for objective {self.objectives[k].name!r}, which is not owned")
        if isinstance(target, Masked):
            target, has_label = target
            if has_label.dtype != torch.bool or has_label.ndim != 1:
                raise ValueError(f"a mask must be bool [B], but is {has_label.dtype} {list(has_label.shape)}")
        elif self.has_separate_targets(targets) and isinstance(target, Tensor):
            has_label = is_labelled(target)
        else:
            return output, target, None
        if has_label.all():
            return output, target, None
        return output[has_label], target[has_label], int(has_label.sum())

    def has_separate_targets(self, targets: Any) -> bool:
        """Whether each objective has separate targets; otherwise every objective gets all of them."""
        return isinstance(targets, (dict, tuple, list)) or self.M == 1

    def of(self, value: Any, k: int) -> Any:
        """The part of outputs or targets that objective k sees."""
        if isinstance(value, dict):
            name = self.objectives[k].name
            if name not in value:
                raise KeyError(f"no entry for objective {name!r} among {sorted(value)}")
            return value[name]
        if isinstance(value, (tuple, list)) and not isinstance(value, Masked):
            if len(value) != self.M:
                raise ValueError(f"expected one entry per objective ({self.M}), but got {len(value)}")
            return value[k]
        return value

    def has_target(self, targets: Any, k: int) -> bool:
        """Whether targets have an entry for objective k."""
        if isinstance(targets, dict):
            return self.objectives[k].name in targets
        return self.of(targets, k) is not None
