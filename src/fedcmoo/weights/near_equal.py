"""Min-norm weights restricted to a neighbourhood of equal weights."""

from dataclasses import dataclass

import numpy as np

from fedcmoo.types import Matrix, Vector


@dataclass(frozen=True)
class NearEqual:
    """Min-norm weights near equal ones: argmin of w^T G w over the simplex with |w_k - 1/M| <= epsilon for all k.

    With epsilon = 0 the weights are equal, which is averaging; with epsilon = 1 they are the min-norm weights of MGDA.
    In between, no objective (such as an outlier) gets more than 1/M + epsilon. Previous weights have no effect.

    Args:
        epsilon: from 0 to 1.

    >>> NearEqual(epsilon=0.1)(np.full(2, 0.5), np.diag([1.0, 3.0])).round(4).tolist()
    [0.6, 0.4]

    References:
        Hu, Shaloudegi, Zhang and Yu. Federated learning meets multi-objective optimization. IEEE Transactions on
        Network Science and Engineering, 2022.
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be from 0 to 1, but got {self.epsilon}")

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        # Imported here since it is slow to import and clients never need it.
        from scipy.optimize import Bounds, LinearConstraint, minimize

        M, scale = len(w), np.abs(np.diag(G)).max(initial=0)
        equal: Vector = np.full(M, 1 / M)
        if scale == 0 or self.epsilon == 0:
            return equal
        low, high = max(0.0, 1 / M - self.epsilon), min(1.0, 1 / M + self.epsilon)

        def squared_norm(v: Vector) -> float:
            return float(v @ G @ v / scale)

        def gradient(v: Vector) -> Vector:
            slope: Vector = 2 * G @ v / scale
            return slope

        sum_is_one = LinearConstraint(np.ones((1, M)), 1.0, 1.0)
        found = minimize(
            squared_norm,
            equal,
            jac=gradient,
            method="SLSQP",
            bounds=Bounds(low, high),
            constraints=sum_is_one,
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        within = np.clip(found.x, low, high)
        new: Vector = within / within.sum()
        return new
