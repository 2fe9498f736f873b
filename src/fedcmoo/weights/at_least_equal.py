"""AtLeastEqual: the weights of FedAvg, raised for objectives that averaging neglects. FedCMOO's default."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.projection import upgrad

MEMORY = "weights.squared_lengths"
"""The sum of diag(G) over all rounds, in the server's memory."""


@dataclass(frozen=True)
class AtLeastEqual:
    """Equal weights, raised where gradients are small or conflict: every w_k is in [1/M, limit/M].

    1. s_k = root mean square over all rounds of ||∇F_k||, the scale of objective k.
    2. u_k = 1/M · sqrt(max_j s_j / s_k): objectives of a smaller scale get more weight.
    3. w = Σ_k argmin over v >= u_k e_k of v^T G v: UPGrad with the preference vector u; no objective gets worse.
    4. w_k <- min(w_k, limit/M), so that the gradient of an objective at its minimum is not blown up.

    So every objective has at least the weight that it has in FedAvg, and those that averaging neglects have more. The
    weights do not sum to one: dividing them by their sum would slow the other objectives down. Where scales are equal
    and no gradients conflict, the weights are those of FedAvg.

    The square root is half-way (as a geometric mean) from equal weights to gradients of equal length, and the scale is
    that of all rounds, since the gradient of an objective that converges first is small for another reason than its
    unit. `fedcmoo bench weights` compares the rule with the other ones.

    Args:
        limit: how many times FedAvg's weight an objective can have.

    >>> AtLeastEqual()(np.full(2, 0.5), np.diag([1.0, 16.0**2])).tolist()  # gradients of lengths 1 and 16
    [2.0, 0.5]
    >>> AtLeastEqual()(np.full(2, 0.5), np.array([[1.0, 0.5], [0.5, 1.0]])).tolist()
    [0.5, 0.5]

    References:
        Quinton and Rey. Jacobian Descent for Multi-Objective Optimization. 2024 (UPGrad). Steps 1, 2 and 4 are ours.
    """

    limit: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.limit < float("inf"):
            raise ValueError(f"limit must be at least 1 and finite, but got {self.limit}")

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        squares = np.maximum(np.diag(G), 0)
        if MEMORY in memory:
            squares = squares + memory[MEMORY].numpy()
        memory[MEMORY] = torch.from_numpy(squares)
        longest = np.sqrt(squares.max())
        u = np.ones(len(w)) / len(w)
        if longest > 0:
            u *= np.sqrt(longest / np.maximum(np.sqrt(squares), longest / self.limit**2))
        weights: Vector = np.minimum(upgrad(G, u), self.limit / len(w))
        return weights
