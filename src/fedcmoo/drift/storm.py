"""STORM within a round: momentum corrected by the gradient of the same batch at the previous point."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcmoo.client import Client, Correct, GradientAt
from fedcmoo.drift.fedcm import FedCM
from fedcmoo.messages import Message


@dataclass(frozen=True)
class Storm(FedCM):
    """Local steps along v, which starts from the direction m that the server sends and is updated in every step.

        v_0 = (1 - beta) g(y_0) + beta m        v_k = g(y_k) + beta (v_{k-1} - g(y_{k-1}))

    Both gradients of the second formula are of the same batch, so their difference is small if the steps are, and v has
    less noise than g. m is the mean of all v of the last round, and changing weights affect it as in `FedCM`. Clients
    keep no state and upload nothing extra, but compute two gradients per step.

    Args:
        beta: 1 - a in STORM's paper: the share of the old direction.

    References:
        Cutkosky and Orabona. Momentum-based variance reduction in non-convex SGD. NeurIPS 2019.
        Khanduri, Sharma, Yang, Hong, Liu, Rajawat and Varshney. STEM: A stochastic two-sided momentum algorithm
        achieving near-optimal sample and communication complexities for federated learning. NeurIPS 2021.
    """

    def start(self, client: Client, message: Message) -> Correct:
        blend = super().start(client, message)
        last: tuple[Tensor, Tensor] | None = None

        def carry(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
            nonlocal last
            if last is None or gradient_at is None:
                blend(y, grad, gradient_at)
            else:
                y_before, v = last
                grad.add_(v - gradient_at(y_before), alpha=self.beta)
            last = y.clone(), grad.clone()

        return carry
