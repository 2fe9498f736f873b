"""AtLeastEqual: the weights of FedAvg, raised for the objectives that averaging neglects."""

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
    """Equal weights, raised where gradients are small or the average hurts an objective: 1/M <= w_k <= 1/sqrt(M).

    1. s_k = root mean square over all rounds of ||∇F_k||: the scale of objective k.
    2. u_k = 1/M · sqrt(max_j s_j / s_k), at most 1/sqrt(M): objectives of a smaller scale get more weight.
    3. w = argmin over w >= u of w^T G w: Σ_k u_k ∇F_k, projected so that no objective gets worse (as in `DualProj`).
    4. w_k <- min(w_k, 1/sqrt(M)).

    Every objective is trained at least as much as in FedAvg, whose weights are 1/M. The upper bound is the geometric
    mean of that weight and the weight 1 of training an objective alone. It keeps steps stable at learning rates that
    suit FedAvg: since ||w|| <= 1, independent noise of the gradients is not larger in Σ_k w_k ∇F_k than in the noisiest
    of them. Weights are not divided by their sum, which would slow down the objectives of a large scale. If scales are
    equal and the average hurts no objective, the weights are those of FedAvg.

    The square root in step 2 is a compromise between equal weights and gradients of equal length. The scale is over all
    rounds, so that an objective that converges early is not mistaken for one with a small unit. `fedcmoo bench weights`
    compares the rule with the other ones.

    >>> rule = AtLeastEqual()
    >>> rule(np.full(4, 0.25), np.diag([1.0, 9.0, 16.0, 16.0]) ** 2).round(3).tolist()  # lengths 1, 9, 16, 16
    [0.5, 0.333, 0.25, 0.25]
    >>> rule(np.full(2, 0.5), np.array([[1.0, 0.5], [0.5, 1.0]])).tolist()
    [0.5, 0.5]

    References:
        Lopez-Paz and Ranzato. Gradient episodic memory for continual learning. NeurIPS 2017 (step 3). The rest is ours.
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
        u = np.sqrt(scale.max() / np.maximum(scale, scale.max() / M)) / M
        new: Vector = np.minimum(project(G, u[None])[0], M**-0.5)
        return new
