"""AtLeastEqual: the weights of FedAvg, raised for the objectives that averaging neglects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.projection import project

MEMORY = "weights.squared_lengths"
"""The name in the server's memory of the sum of diag(G) over all rounds."""


@dataclass(frozen=True)
class AtLeastEqual:
    """Equal weights, raised where gradients are small or the average hurts an objective: w_k >= 1/M and ||w|| <= 1.

    1. s_k = root mean square over all rounds of ||∇F_k||: the scale of objective k.
    2. u_k = 1/M · sqrt(max_j s_j / s_k): objectives of a smaller scale get more weight.
    3. u <- min(u, c), with the largest c <= 1 for which ||u|| <= 1.
    4. w = argmin over w >= u of w^T G w: Σ_k u_k ∇F_k, projected so that no objective gets worse (as in `DualProj`).
    5. w <- min(w, c), with c as in step 3.

    Every objective is trained at least as much as in FedAvg, whose weights are 1/M, and at most as much as if it were
    trained alone. The bound on ||w|| keeps steps stable: if the noise of the gradients is independent, that of
    Σ_k w_k ∇F_k is at most that of the noisiest objective alone. Weights are not divided by their sum, which would slow
    down the objectives of a large scale. If scales are equal and the average hurts no objective, the weights are those
    of FedAvg.

    The square root is a compromise (the geometric mean) between equal weights and gradients of equal length. The scale
    is over all rounds, so that an objective that converges early is not mistaken for one with a small unit. `fedcmoo
    bench weights` compares the rule with the other ones.

    >>> rule = AtLeastEqual()
    >>> rule(np.full(4, 0.25), np.diag([1.0, 4.0, 16.0, 16.0]) ** 2).round(3).tolist()  # lengths 1, 4, 16, 16
    [0.791, 0.5, 0.25, 0.25]
    >>> rule(np.full(2, 0.5), np.array([[1.0, 0.5], [0.5, 1.0]])).tolist()
    [0.5, 0.5]

    References:
        Lopez-Paz and Ranzato. Gradient episodic memory for continual learning. NeurIPS 2017 (step 4). The rest is ours.
    """

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        M = len(w)
        squares = np.maximum(np.diag(G), 0)
        if MEMORY in memory:
            squares = squares + memory[MEMORY].numpy()
        memory[MEMORY] = torch.from_numpy(squares)
        scale = np.sqrt(squares)
        if scale.max() == 0:
            return np.full(M, 1 / M)
        u = np.sqrt(scale.max() / np.maximum(scale, scale.max() / M**2)) / M
        return within_unit_ball(project(G, within_unit_ball(u)[None])[0])


def within_unit_ball(w: Vector) -> Vector:
    """min(w, c) for positive weights w [M], with the largest c <= 1 such that its Euclidean norm is at most 1.

    >>> within_unit_ball(np.array([0.5, 0.7])).tolist(), within_unit_ball(np.array([0.6, 3.0])).round(6).tolist()
    ([0.5, 0.7], [0.6, 0.8])
    """
    smaller = np.append(0, np.cumsum(np.sort(w) ** 2)[:-1])  # for each weight, the squares of the smaller ones
    bounds = np.sqrt(np.maximum(1 - smaller, 0) / np.arange(len(w), 0, -1))  # c, if it cuts off this and larger weights
    bounded: Vector = np.minimum(w, bounds.max())
    return bounded
