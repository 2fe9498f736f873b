"""Checks of a problem on its data: a first pass over two samples before work starts, and what may explain a NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcmoo.context import during
from fedcmoo.data.base import Data, is_finite
from fedcmoo.evaluation import evaluate
from fedcmoo.randomness import generator, seeded

if TYPE_CHECKING:
    from fedcmoo.problem import Problem

SAMPLES = 2


def first_pass(problem: Problem, channels_last: bool) -> None:
    """Losses, gradients and metrics of two samples, computed as in training; nothing if no data are here."""
    data = problem.some_data()
    if data is None:
        return
    stop = min(SAMPLES, len(data))
    model = problem.flat_model(channels_last=channels_last)
    model.module.train()
    with during(f"before training, with a batch of {stop}"), seeded(model.device, 0, "first pass"):
        inputs, targets = data.batch(torch.arange(stop))
        which = [k for k in range(problem.M) if problem.has_target(targets, k)]
        if problem.transform is not None:
            inputs = problem.transform(inputs, generator(0, "first pass"))
        losses = problem.losses(model(inputs), model.move(targets), which)
        if not losses:  # of a client that owns no objective
            return
        try:
            torch.stack(losses).sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        except RuntimeError:
            for k, loss in zip(which, losses, strict=True):  # whose is it?
                with during(f"in the gradient of objective {problem.objectives[k].name!r}"):
                    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            raise
        evaluate(problem, model, data, 0, stop, which)


def fits_channels_last(problem: Problem) -> bool:
    """Whether the model can compute with kernels and images laid out channels-last, by a first pass.

    One that flattens a convolution's output with `view` cannot. If it can compute in no layout, its error is raised.
    """
    try:
        first_pass(problem, channels_last=True)
    except RuntimeError as error:
        try:
            first_pass(problem, channels_last=False)
        except Exception:
            raise error from None
        return False
    return True


def check_finite(problem: Problem, data: Data, whose: str) -> None:
    """Raise if some sample has NaN or infinite entries, other than missing labels."""
    for i in range(len(data)):
        inputs, targets = data.batch(torch.tensor([i]))
        for name, part in (("inputs", inputs), ("targets", () if problem.deals_out(targets) else targets)):
            if not is_finite(part):
                raise ValueError(f"{name} must be finite, but sample {i} of {whose} has NaN or infinite ones")


def first_not_finite(problem: Problem, which: Sequence[int], losses: Tensor, values: Tensor) -> str:
    """The objective whose loss was NaN or infinite first, or else those whose gradient was.

    Args:
        problem: the problem.
        which: the places of n objectives.
        losses: theirs, n in each step.
        values: the gradients of all objectives, [M, d], or what they made of x together, [1, d].
    """
    step = next((row for row in losses.reshape(-1, len(which)) if not row.isfinite().all()), None)
    if step is not None:
        what, bad = "loss", [k for k, loss in zip(which, step, strict=True) if not loss.isfinite()]
    else:
        what, bad = "gradient", [k for k in which if len(values) == 1 or not values[k].isfinite().all()]
    return f"the {what} of objective {' or '.join(repr(problem.objectives[k].name) for k in bad)}"
