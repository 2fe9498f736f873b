"""FedProx: local steps are pulled back to the global model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcmoo.client import Client, Correct, GradientAt
from fedcmoo.drift.base import Drift
from fedcmoo.messages import Message
from fedcmoo.validation import positive


@dataclass(frozen=True)
class FedProx(Drift):
    """Clients minimise Σ_k w_k f_{i,k}(y) + mu/2 ||y - x||²: mu (y - x) is added to their gradients.

    Args:
        mu: the strength of the pull; client_lr * mu must be well below 1.

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith. Federated optimization in heterogeneous networks. MLSys 2020.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        positive(mu=self.mu)

    def start(self, client: Client, message: Message) -> Correct:
        x = client.state.x[: client.model.d]

        def pull_back(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
            grad.add_(y - x, alpha=self.mu)

        return pull_back
