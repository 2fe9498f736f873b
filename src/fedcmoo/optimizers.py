"""A client's optimizer, on the flat vector: each step is a handful of operations, whatever the number of layers.

Not torch.optim: a client's optimizer lives for a few steps of one round, and there the construction, the per-step
bookkeeping and the two seconds that the first import of torch's compiler costs every worker would be a good part of
the work. The tests hold these against torch.optim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Stepper(Protocol):
    """One client's optimizer in one round."""

    def step(self, x: Tensor, grad: Tensor) -> None:
        """Change x [d] in place, given the gradient [d]."""


class Optimizer(Protocol):
    """The settings of a local optimizer; `start` makes a fresh one for a client."""

    def start(self, lr: float) -> Stepper:
        """An optimizer without memory of any other client or round."""


@dataclass(frozen=True)
class SGD:
    """x <- x - lr v with v <- momentum v + grad; plain gradient steps for momentum = 0."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), but got {self.momentum}")

    def start(self, lr: float) -> Stepper:
        return _SGD(lr, self.momentum)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), with its usual defaults."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), but got {getattr(self, name)}")
        if not self.eps > 0:
            raise ValueError(f"eps must be positive, but got {self.eps}")

    def start(self, lr: float) -> Stepper:
        return _Adam(lr, self)


class _SGD:
    def __init__(self, lr: float, momentum: float) -> None:
        self.lr, self.momentum = lr, momentum
        self.velocity: Tensor | None = None

    def step(self, x: Tensor, grad: Tensor) -> None:
        if self.momentum == 0:
            x.add_(grad, alpha=-self.lr)
            return
        if self.velocity is None:
            self.velocity = grad.clone()
        else:
            self.velocity.mul_(self.momentum).add_(grad)
        x.add_(self.velocity, alpha=-self.lr)


class _Adam:
    def __init__(self, lr: float, settings: Adam) -> None:
        self.lr, self.settings, self.t = lr, settings, 0
        self.m: Tensor | None = None
        self.v: Tensor | None = None

    def step(self, x: Tensor, grad: Tensor) -> None:
        b1, b2 = self.settings.beta1, self.settings.beta2
        if self.m is None or self.v is None:
            self.m, self.v = torch.zeros_like(grad), torch.zeros_like(grad)
        self.t += 1
        self.m.lerp_(grad, 1 - b1)
        self.v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        scale = (self.v / (1 - b2**self.t)).sqrt_().add_(self.settings.eps)
        x.addcdiv_(self.m, scale, value=-self.lr / (1 - b1**self.t))


OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}
