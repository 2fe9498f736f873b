"""Weights from losses alone: M numbers from each client instead of a Gram matrix.

A scalarization S(F) combines the M losses F into one number. Descent on it is descent on the weighted loss with w_k =
∂S/∂F_k, divided here by the sum of absolute values, so that a learning rate means the same for every rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.types import Vector
from fedcmoo.validation import not_negative, positive
from fedcmoo.weights.preference import check_preference

SMALLEST = 1e-8
"""The lower bound of losses in divisions and logarithms."""

Memory = dict[str, Tensor]
"""The state that a rule keeps from round to round, in the server's memory, which checkpoints include."""


class LossRule(ABC):
    """A rule that turns the losses F [M] into weights [M]; its state is in `memory`, under "scalarization."."""

    @abstractmethod
    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        """The weights of the next round."""


def _normalized(w: Vector) -> Vector:
    new: Vector = w / np.abs(w).sum()
    return new


def _recall(memory: Memory, name: str, default: Vector) -> Vector:
    known = memory.get(f"scalarization.{name}")
    return default if known is None else known.numpy()


def _keep(memory: Memory, **arrays: Vector) -> None:
    memory |= {f"scalarization.{name}": torch.from_numpy(array) for name, array in arrays.items()}


@dataclass(frozen=True)
class GeometricMean(LossRule):
    """The geometric mean of the losses: w_k ∝ 1 / F_k, so every loss falls by the same share to first order.

    >>> GeometricMean()(np.array([1.0, 4.0]), {}).tolist()
    [0.8, 0.2]
    """

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        return _normalized(1 / np.maximum(losses, SMALLEST))


@dataclass(frozen=True)
class SmoothTchebycheff(LossRule):
    """The smooth maximum μ log Σ_k exp(r_k F_k / μ) of the losses: w_k ∝ r_k exp(r_k F_k / μ).

    Args:
        mu: μ; smaller is closer to the largest loss alone.
        preference: r; None for equal ones. It is divided by its sum.

    References:
        Lin, Zhang, Yang, Liu, Wang and Zhang. Smooth Tchebycheff scalarization for multi-objective optimization. ICML
        2024.
    """

    mu: float = 0.1
    preference: Sequence[float] | None = None

    def __post_init__(self) -> None:
        positive(mu=self.mu)
        if self.preference is not None:
            check_preference(self.preference)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        r = _preference(self.preference, len(losses))
        exponents = r * losses / self.mu
        return _normalized(r * np.exp(exponents - exponents.max()))


@dataclass(frozen=True)
class COSMOS(LossRule):
    """The weighted sum of the losses minus λ times the cosine between losses and preference: Σ_k r_k F_k - λ cos(r, F).

    Args:
        penalty: λ, not negative.
        preference: r; None for equal ones. It is divided by its sum. Weights may be negative.

    References:
        Ruchte and Grabocka. Scalable Pareto front approximation for deep multi-objective learning. ICDM 2021.
    """

    penalty: float = 1.0
    preference: Sequence[float] | None = None

    def __post_init__(self) -> None:
        not_negative(penalty=self.penalty)
        if self.preference is not None:
            check_preference(self.preference)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        r, length = _preference(self.preference, len(losses)), max(float(np.linalg.norm(losses)), SMALLEST)
        unit = losses / length
        cosine = r @ unit / np.linalg.norm(r)
        return _normalized(r - self.penalty * (r / np.linalg.norm(r) - cosine * unit) / length)


@dataclass(frozen=True)
class PBI(LossRule):
    """The length of the losses along the preference plus θ times their distance from it: d_1 + θ d_2.

    Args:
        theta: θ, not negative.
        preference: r; None for equal ones. Weights may be negative.

    References:
        Zhang and Li. MOEA/D: a multiobjective evolutionary algorithm based on decomposition. IEEE Transactions on
        Evolutionary Computation, 2007.
    """

    theta: float = 0.5
    preference: Sequence[float] | None = None

    def __post_init__(self) -> None:
        not_negative(theta=self.theta)
        if self.preference is not None:
            check_preference(self.preference)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        r = _preference(self.preference, len(losses))
        r /= np.linalg.norm(r)
        across = losses - (losses @ r) * r
        return _normalized(r + self.theta * across / max(float(np.linalg.norm(across)), SMALLEST))


@dataclass(frozen=True)
class DWA(LossRule):
    """Dynamic weight average: more weight for losses that fall slowly, w = softmax(F^(t) / F^(t-1) / T).

    Args:
        temperature: T; larger is more even.

    References:
        Liu, Johns and Davison. End-to-end multi-task learning with attention. CVPR 2019.
    """

    temperature: float = 2.0

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        rates = losses / np.maximum(_recall(memory, "losses", losses), SMALLEST)
        _keep(memory, losses=losses)
        return softmax(rates / self.temperature)


@dataclass(frozen=True)
class UncertaintyWeighting(LossRule):
    """Σ_k ½ exp(-s_k) F_k + ½ s_k with learnt log-variances s: w_k ∝ exp(-s_k), which tends to 1 / F_k.

    Args:
        lr: the learning rate of the gradient steps on s, one per round.

    References:
        Kendall, Gal and Cipolla. Multi-task learning using uncertainty to weigh losses for scene geometry and
        semantics. CVPR 2018.
    """

    lr: float = 0.025

    def __post_init__(self) -> None:
        not_negative(lr=self.lr)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        s = _recall(memory, "log_variances", np.zeros(len(losses)))
        s = s - self.lr * 0.5 * (1 - np.exp(-s) * losses)
        _keep(memory, log_variances=s)
        return softmax(-s)


@dataclass(frozen=True)
class IMTLL(UncertaintyWeighting):
    """IMTL-L: Σ_k exp(s_k) F_k - s_k with learnt s, which is twice the loss of uncertainty weighting at -s.

    References:
        Liu, Li, Kuang, Xue, Chen, Yang, Liao and Zhang. Towards impartial multi-task learning. ICLR 2021.
    """

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        return UncertaintyWeighting(2 * self.lr)(losses, memory)


@dataclass(frozen=True)
class FAMO(LossRule):
    """Fast adaptive multi-task optimization: the losses' logarithms fall at about the same rate.

    w_k ∝ z_k / F_k with z = softmax(ξ). After every round Adam takes a step on the logits ξ, whose gradient is that of
    Σ_k z_k (log F_k^(t-1) - log F_k^(t)): an objective whose loss fell fast gets less weight.

    Args:
        lr: Adam's learning rate.
        decay: weight decay of the logits.

    References:
        Liu, Feng, Stone and Liu. FAMO: fast adaptive multitask optimization. NeurIPS 2023.
    """

    lr: float = 0.025
    decay: float = 1e-3

    def __post_init__(self) -> None:
        not_negative(lr=self.lr, decay=self.decay)

    def __call__(self, losses: Vector, memory: Memory) -> Vector:
        F = np.maximum(losses, 0) + SMALLEST
        logits = _recall(memory, "logits", np.zeros(len(F)))
        before = _recall(memory, "losses", np.zeros(0))
        if len(before):
            z, fall = softmax(logits), np.log(before / F)
            gradient = z * (fall - z @ fall) + self.decay * logits
            logits = logits - self.lr * self._adam(gradient, memory)
        _keep(memory, logits=logits, losses=F)
        return _normalized(softmax(logits) / F)

    def _adam(self, gradient: Vector, memory: Memory) -> Vector:
        """Adam's direction, with the usual β = (0.9, 0.999) and ε = 1e-8."""
        steps = _recall(memory, "steps", np.zeros(1)) + 1
        m = 0.9 * _recall(memory, "m", np.zeros_like(gradient)) + 0.1 * gradient
        v = 0.999 * _recall(memory, "v", np.zeros_like(gradient)) + 0.001 * gradient**2
        _keep(memory, steps=steps, m=m, v=v)
        direction: Vector = m / (1 - 0.9**steps) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)
        return direction


SCALARIZATIONS: dict[str, type[LossRule]] = {
    "famo": FAMO,
    "smooth-tchebycheff": SmoothTchebycheff,
    "uncertainty": UncertaintyWeighting,
    "imtl-l": IMTLL,
    "dwa": DWA,
    "geometric-mean": GeometricMean,
    "cosmos": COSMOS,
    "pbi": PBI,
}
"""The rules that need only the losses, by name."""


def softmax(x: Vector) -> Vector:
    """exp(x_k) / Σ_j exp(x_j), [M]."""
    return _normalized(np.exp(x - x.max()))


def _preference(preference: Sequence[float] | None, M: int) -> Vector:
    return _normalized(np.ones(M) if preference is None else check_preference(preference, M))
