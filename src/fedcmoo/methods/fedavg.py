"""FedAvg on the average loss, or on any fixed weighting of the objectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcmoo.contributions import Contribution
from fedcmoo.methods.base import WeightedLoss
from fedcmoo.rounds import Ask, Round, Server
from fedcmoo.types import Vector


@dataclass(frozen=True, kw_only=True)
class FedAvg(WeightedLoss):
    """FedAvg: local steps on Σ_k w_k f_{i,k} with fixed weights (section 6.2, the scalarised baseline).

    The server takes the unweighted mean of the clients' updates, as in the paper. For a mean weighted by the numbers of
    samples, as in the original FedAvg, use `Problem(..., weights="samples")`.

    Args:
        weights: one per objective, divided by their sum; None for equal weights. A single 1 among zeros trains one
            objective alone.

    References:
        McMahan, Moore, Ramage, Hampson and Agüera y Arcas. Communication-efficient learning of deep networks from
        decentralized data. AISTATS 2017.
    """

    title: ClassVar[str] = "local steps on the average loss, or on fixed weights"

    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None:
            w = np.asarray(self.weights, dtype=float)
            if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
                raise ValueError(f"weights must be non-negative numbers with a positive sum, but got {self.weights}")

    def initial_weights(self, M: int) -> Vector:
        if self.weights is None:
            return super().initial_weights(M)
        if len(self.weights) != M:
            raise ValueError(f"weights must be one per objective ({M}), but got {len(self.weights)}")
        w: Vector = np.asarray(self.weights, dtype=float) / sum(self.weights)
        return w

    def contributions(self) -> Mapping[str, Contribution]:
        return {"train": self.training(reuse_jacobian=False)}

    def round(self, server: Server) -> Round:
        sums = yield Ask({"train": self.training_message(server)})
        self.finish(server, sums.part("train"))
