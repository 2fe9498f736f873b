"""FedCM: every local step includes a share of the cohort's last direction, which the server sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client, Correct, GradientAt
from fedcmoo.drift.base import Drift, remembered
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Server, Sizes
from fedcmoo.validation import below_one

MOMENTUM = "fedcm"


@dataclass(frozen=True)
class FedCM(Drift):
    """Local steps along (1 - beta) g_i + beta m, where m is the mean direction of all local steps of the last round.

    Clients keep no state and upload nothing extra. Since m is computed recursively, it is an exponential average of the
    weighted gradients of many cohorts, with less noise and common to all clients. In the first round steps are along
    g_i alone.

    With changing weights, m = (1 - beta) Σ_s beta^s Σ_k w_k^(t-s) ∇F_k: as long as the gradients change little, this is
    the direction of the average weights (1 - beta) Σ_s beta^s w^(t-s). New weights take effect over about
    1 / (1 - beta) rounds.

    Args:
        beta: the share of m.

    References:
        Xu, Wang, Wang and Yao. FedCM: Federated learning with client-level momentum. arXiv:2106.10874, 2021.
        Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh. Breaking the centralized barrier for cross-device
        federated learning. NeurIPS 2021.
    """

    plain_steps: ClassVar[bool] = True

    beta: float = 0.9

    def __post_init__(self) -> None:
        below_one(beta=self.beta)

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"m": Field((sizes.d,), sizes.dtype)}

    def message(self, server: Server) -> Mapping[str, Tensor]:
        return {"m": remembered(server, MOMENTUM)}

    def start(self, client: Client, message: Message) -> Correct:
        m = message["m"].to(client.state.x)
        beta = self.beta if m.any() else 0.0  # there is no direction yet

        def blend(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
            grad.lerp_(m, beta)

        return blend

    def learn(self, server: Server, direction: Tensor, replies: int) -> None:
        server.memory[MOMENTUM] = direction
