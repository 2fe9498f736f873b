"""The exact min-norm weights of MGDA."""

from dataclasses import dataclass

import numpy as np

from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.gramian import root


def min_norm(G: Matrix) -> Vector:
    """argmin over the simplex of w^T G w = ||Σ_k w_k ∇F_k||² (eq. 3), exactly.

    With G = A^T A, the non-negative u that minimises ||A u||² + (1^T u - 1)² satisfies G u >= (1 - 1^T u) 1, with
    equality where u > 0. Divided by its sum, that is the optimality condition of the min-norm problem, so one call of
    an active-set least-squares solver gives the solution. Negative eigenvalues of G (noise of a compressed estimate)
    count as zero.

    Args:
        G: symmetric [M, M].

    Returns:
        w on the simplex, [M].

    >>> min_norm(np.array([[1.0, 0.0], [0.0, 3.0]])).round(6).tolist()
    [0.75, 0.25]
    """
    from scipy.optimize import nnls  # imported here since it is slow to import and clients never need it

    M = len(G)
    scale = np.abs(np.diag(G)).max(initial=0)
    if scale == 0:
        return np.full(M, 1 / M)
    A = root(G / scale).T  # A^T A = G, [M, M]
    u, _ = nnls(np.vstack([A, np.ones(M)]), np.append(np.zeros(M), 1.0))
    w: Vector = u / u.sum()
    return w


@dataclass(frozen=True)
class MinNorm:
    """The weights of MGDA: the exact min-norm solution, independent of the previous weights.

    Args:
        clip: weights are clipped to [clip, 1 - clip] and divided by their sum. 0 is MGDA; the solver of the paper's
            FSMGDA runs uses 0.001.

    >>> MinNorm(clip=0.001)(np.ones(2) / 2, np.array([[1.0, 2.0], [2.0, 4.0]])).round(6).tolist()
    [0.999, 0.001]
    """

    clip: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.clip < 0.5:
            raise ValueError(f"clip must be at least 0 and below 0.5, but got {self.clip}")

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        clipped = min_norm(G).clip(self.clip, 1 - self.clip)
        new: Vector = clipped / clipped.sum()
        return new
