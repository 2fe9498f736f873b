"""Optimizers of clients and server on the flat vector: a step takes a few operations for all layers together.

torch.optim is not used because a client's optimizer exists for only a few steps of one round: construction, per-step
bookkeeping and the two seconds that the first import of torch's compiler costs every worker would be a large part of
the work. The tests compare these optimizers with torch.optim.

At the server the mean update x - mean_i x_i takes the gradient's place (FedOpt).

References:
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan. Adaptive federated optimization. ICLR 2021.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedcmoo.validation import below_one, positive

OptimizerState = dict[str, Tensor]
"""The state of an optimizer, by name."""

GradientAt = Callable[[Tensor], Tensor]
"""A function that computes the gradient [d] of a local step's batch at another point, with the same augmentation and
dropout. The point may lack the private parameters after the first d; those are then the current ones."""

Correct = Callable[[Tensor, Tensor, GradientAt | None], None]
"""A function that changes the gradient [d] of a local step in place, given the current point, including private
parameters, and the gradient. In the first step of a round, the gradient at other points may not be available."""


class Optimizer(Protocol):
    """The settings of an optimizer."""

    def step(self, x: Tensor, grad: Tensor, lr: float, state: OptimizerState) -> None:
        """Change x [d] in place, given the gradient [d]. `state` is empty at the first step, and is changed too."""


@dataclass(frozen=True)
class SGD:
    """x <- x - lr v with v <- momentum v + grad; plain gradient steps for momentum = 0."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        below_one(momentum=self.momentum)

    def step(self, x: Tensor, grad: Tensor, lr: float, state: OptimizerState) -> None:
        if self.momentum == 0:
            x.add_(grad, alpha=-lr)
            return
        if "velocity" in state:
            state["velocity"].mul_(self.momentum).add_(grad)
        else:
            state["velocity"] = grad.clone()
        x.add_(state["velocity"], alpha=-lr)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), with its usual defaults.

    At the server, `eps` is the size above which the entries of the mean update are scaled to about the same length; the
    authors of FedOpt use 0.001.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        below_one(beta1=self.beta1, beta2=self.beta2)
        positive(eps=self.eps)

    def step(self, x: Tensor, grad: Tensor, lr: float, state: OptimizerState) -> None:
        if not state:
            state |= {"m": torch.zeros_like(grad), "v": torch.zeros_like(grad), "t": torch.zeros(())}
        state["t"] += 1
        t = int(state["t"])
        state["m"].lerp_(grad, 1 - self.beta1)
        self.second_moment(state["v"], grad)
        scale = (state["v"] / (1 - self.beta2**t)).sqrt_().add_(self.eps)
        x.addcdiv_(state["m"], scale, value=-lr / (1 - self.beta1**t))

    def second_moment(self, v: Tensor, grad: Tensor) -> None:
        """v <- beta2 v + (1 - beta2) grad²."""
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)


@dataclass(frozen=True)
class Yogi(Adam):
    """Adam with a second moment that falls no faster than it rises (Zaheer et al., 2018).

    v <- v + (1 - beta2) sign(grad² - v) grad².
    """

    eps: float = 1e-3

    def second_moment(self, v: Tensor, grad: Tensor) -> None:
        square = grad.square()
        v.addcmul_((square - v).sign_(), square, value=1 - self.beta2)


@dataclass(frozen=True)
class Adagrad:
    """x <- x - lr grad / (sqrt(v) + eps) with v <- v + grad² (Duchi et al., 2011)."""

    eps: float = 1e-10

    def __post_init__(self) -> None:
        positive(eps=self.eps)

    def step(self, x: Tensor, grad: Tensor, lr: float, state: OptimizerState) -> None:
        if not state:
            state["v"] = torch.zeros_like(grad)
        state["v"].addcmul_(grad, grad)
        x.addcdiv_(grad, state["v"].sqrt().add_(self.eps), value=-lr)


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "yogi": Yogi, "adagrad": Adagrad}
