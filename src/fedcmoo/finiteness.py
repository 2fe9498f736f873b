"""Possible causes of a NaN: data that are not finite, or the objective whose loss or gradient was affected first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcmoo.data.base import Data, is_finite
from fedcmoo.failures import DivergedError
from fedcmoo.problem import Problem


def check_finite(problem: Problem, data: Data, whose: str) -> None:
    """Raise if some sample has NaN or infinite entries, other than missing labels."""
    for i in range(len(data)):
        inputs, targets = data.batch(torch.tensor([i]))
        for name, part in (("inputs", inputs), ("targets", () if problem.deals_out(targets) else targets)):
            if not is_finite(part):
                raise ValueError(f"{name} must be finite, but sample {i} of {whose} has NaN or infinite ones")


def diverged(problem: Problem, which: Sequence[int], losses: Tensor, values: Tensor, where: str) -> DivergedError:
    """The error that names the objective whose loss was NaN or infinite first, or else those whose gradient was.

    Args:
        problem: the problem.
        which: the indices of n objectives.
        losses: their losses, n in each step.
        values: the gradients of all objectives, [M, d], or the resulting x, [1, d].
        where: the round and the client.
    """
    step = next((row for row in losses.reshape(-1, len(which)) if not row.isfinite().all()), None)
    if step is not None:
        what, bad = "loss", [k for k, loss in zip(which, step, strict=True) if not loss.isfinite()]
    else:
        what, bad = "gradient", [k for k in which if len(values) == 1 or not values[k].isfinite().all()]
    names = " or ".join(repr(problem.objectives[k].name) for k in bad)
    return DivergedError(
        f"the {what} of objective {names} became NaN or infinite in {where}; a smaller client_lr or server_lr usually "
        "helps"
    )
