"""FindWeights (Algorithm 2): projected-gradient steps towards the min-norm weights."""

from dataclasses import dataclass

import numpy as np

from fedcmoo.types import Matrix, Vector
from fedcmoo.validation import at_least_one, not_negative

EPSILON = 1e-5
"""Added so that the scale of vanishing gradients is not zero."""


@dataclass(frozen=True)
class FindWeights:
    """K steps of w <- P(w - β G w) on the simplex (eq. 5), starting from the previous round's weights.

    With `scale_free`, G is first divided by the squared mean of sqrt(diag(G) + 1e-5), so that β does not depend on
    the gradients' scale. Algorithm 2 does not mention this, but the authors' runs do it, and without it no β suits two
    experiments. (They add 1e-4 to n·diag(G), with n = 10 clients a round.)

    Args:
        beta: the step size β; 0 leaves the weights as they are, which is FedAvg.
        iterations: K.
        scale_free: see above.

    >>> G = np.array([[1.0, 0.0], [0.0, 3.0]])
    >>> FindWeights(iterations=20_000)(np.array([0.5, 0.5]), G).round(3).tolist()
    [0.75, 0.25]
    """

    beta: float = 0.001
    iterations: int = 1000
    scale_free: bool = True

    def __post_init__(self) -> None:
        not_negative(beta=self.beta)
        at_least_one(iterations=self.iterations)

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        """The new weights [M], from the old ones [M] and the Gram matrix [M, M]."""
        if self.scale_free:
            G = unit_scale(G)
        step = np.eye(len(w)) - self.beta * G
        for _ in range(self.iterations):
            previous, w = w, project_on_simplex(step @ w)
            # Lists, since NumPy takes longer to compare a few numbers than to compute them.
            if w.tolist() == previous.tolist():  # a fixed point: all further steps would give the same
                break
        return w


def unit_scale(G: Matrix) -> Matrix:
    """G [M, M] divided by the squared mean of sqrt(diag(G) + EPSILON), about the mean length of the M gradients."""
    scaled: Matrix = G / np.sqrt(np.maximum(np.diag(G), 0) + EPSILON).mean() ** 2
    return scaled


def project_on_simplex(v: Vector) -> Vector:
    """The point of {w : w >= 0, Σ w = 1} nearest to v [M]: max(v - θ, 0), with the one θ that makes it sum to 1.

    >>> project_on_simplex(np.array([0.5, 0.7])).round(6).tolist()
    [0.4, 0.6]
    >>> project_on_simplex(np.array([2.0, 0.0, -1.0])).tolist()
    [1.0, 0.0, 0.0]

    References:
        Held, Wolfe and Crowder. Validation of subgradient optimization. Mathematical Programming, 1974.
    """
    theta = (v.sum() - 1) / len(v)
    if min(v.tolist()) > theta:  # nothing is cut off: the usual case inside the loop of find_weights
        inside: Vector = v - theta
        return inside
    descending = np.sort(v)[::-1]
    thetas = (np.cumsum(descending) - 1) / np.arange(1, len(v) + 1)
    support = np.count_nonzero(descending > thetas)
    w: Vector = np.maximum(v - thetas[support - 1], 0)
    return w
