"""DualProj and UPGrad: gradients projected onto the directions in which no objective gets worse, to first order."""

from dataclasses import dataclass

import numpy as np

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.gramian import root, unit_lengths

RIDGE = 1e-6
"""The square of this is added to the diagonal of the unit gradients' Gram matrix, so that the weights are unique."""


def project(G: Matrix, references: Matrix) -> Matrix:
    """argmin over v >= u of v^T G v, for each row u [M] of `references` [n, M]: weights [n, M].

    Σ_k v_k ∇F_k is the projection of Σ_k u_k ∇F_k onto the cone of directions d with <d, ∇F_k> >= 0 for all k, so a
    small step against it makes no objective worse, and it is never longer. Where no two gradients conflict, v = u.

    With G = A^T A and v = u + z, z >= 0 minimises ||A z + A u||²: one call of a non-negative least-squares solver.
    Gradients are first scaled to unit length, so that the scales of objectives do not affect the accuracy. Negative
    eigenvalues of G (noise of a compressed estimate) count as zero.

    >>> project(np.array([[1.0, -0.5], [-0.5, 0.25]]), np.array([[0.5, 0.5]])).round(3).tolist()
    [[0.5, 1.0]]

    References:
        Lopez-Paz and Ranzato. Gradient episodic memory for continual learning. NeurIPS 2017, eq. 11.
    """
    from scipy.optimize import nnls  # imported here since it is slow to import and clients never need it

    M = len(G)
    length = unit_lengths(G)
    A = root(G / np.outer(length, length)).T
    ridged = np.vstack([A, RIDGE * np.eye(M)])
    raised = [nnls(ridged, np.append(-A @ (u * length), np.zeros(M)))[0] / length for u in references]
    weights: Matrix = references + np.stack(raised)
    return weights


@dataclass(frozen=True)
class DualProj:
    """The mean gradient, projected so that it conflicts with none: argmin over w >= 1/M of w^T G w.

    Args:
        normalize: divide the weights by their sum, which is 1 or more; as in `TorchJD`.

    >>> DualProj(normalize=False)(np.full(2, 0.5), np.array([[1.0, -0.5], [-0.5, 0.25]])).round(3).tolist()
    [0.5, 1.0]

    References:
        Lopez-Paz and Ranzato. Gradient episodic memory for continual learning. NeurIPS 2017.
    """

    normalize: bool = True

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        M = len(w)
        new: Vector = project(G, np.full((1, M), 1 / M))[0]
        return new / new.sum() if self.normalize else new


@dataclass(frozen=True)
class UPGrad:
    """The mean of gradients, each projected so that it conflicts with none: Σ_k argmin over v >= e_k / M of v^T G v.

    Args:
        normalize: divide the weights by their sum, which is 1 or more; as in `TorchJD`.

    >>> UPGrad(normalize=False)(np.full(2, 0.5), np.array([[1.0, -0.5], [-0.5, 1.0]])).round(3).tolist()
    [0.75, 0.75]

    References:
        Quinton and Rey. Jacobian Descent for Multi-Objective Optimization. 2024.
    """

    normalize: bool = True

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        M = len(w)
        new: Vector = project(G, np.eye(M) / M).sum(axis=0)
        return new / new.sum() if self.normalize else new
