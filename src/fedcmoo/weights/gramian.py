"""Repair of noisy estimates of a Gram matrix, for rules that need a positive semidefinite one."""

import numpy as np

from fedcmoo.types import Matrix, Vector

ZERO = 1e-12
"""A gradient shorter than this times the longest one counts as zero."""


def root(G: Matrix) -> Matrix:
    """A matrix A [M, M] with A A^T = G [M, M]; negative eigenvalues of G count as zero.

    Its rows are M vectors with the same lengths and angles as the gradients.
    """
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    A: Matrix = vectors * np.sqrt(np.maximum(values, 0))
    return A


def positive_part(G: Matrix) -> Matrix:
    """The positive semi-definite matrix nearest to G [M, M]: G itself, or G without its negative eigenvalues.

    >>> positive_part(np.array([[1.0, 2.0], [2.0, 1.0]])).round(6).tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """
    A = root(G)
    return G if np.allclose(A @ A.T, G, rtol=0, atol=1e-14 * np.abs(G).max(initial=0)) else A @ A.T


def unit_lengths(G: Matrix) -> Vector:
    """The divisors [M] that scale the gradients to length 1: their lengths, the largest length for gradients of length
    zero, and 1 if all are zero.

    >>> unit_lengths(np.diag([4.0, 0.0, 9.0])).tolist()
    [2.0, 3.0, 3.0]
    """
    length: Vector = np.sqrt(np.maximum(np.diag(G), 0))
    longest = length.max()
    length[length <= ZERO * longest] = longest if longest > 0 else 1.0
    return length
