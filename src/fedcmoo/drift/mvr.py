"""MVR: every local step is corrected by the gradient of its batch at the model of the previous round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client, Correct, GradientAt
from fedcmoo.drift.base import remembered
from fedcmoo.drift.fedcm import FedCM
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Server, Sizes

LAST_MODEL = "last-model"


@dataclass(frozen=True)
class MVR(FedCM):
    """Local steps along g_i(y) + beta (m - g_i(x')), where x' is the global model of the previous round.

    m is the mean direction of all local steps of that round, as in `FedCM`. Both gradients are of the same batch, so
    the deviations of the batch and of the cohort's clients largely cancel and are replaced by m. Clients keep no state
    and upload nothing extra, are sent x' and m besides x, and compute two gradients per step. In the first round
    steps are along g_i alone.

    With changing weights, m belongs to the weights w' of the previous round, and g_i(x') to those of this round: the
    direction has an error of beta Σ_k (w'_k - w_k) ∇F_k, which vanishes as the weights settle.

    Args:
        beta: the share of the old direction; 1 - beta in the paper.

    References:
        Cheng, Huang, Wu and Yuan. Momentum benefits non-IID federated learning simply and provably. ICLR 2024.
        (FedAvg-M-VR.)
    """

    pairs: ClassVar[bool] = True

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {**super().fields(sizes), "last": Field((sizes.d,), sizes.dtype)}

    def message(self, server: Server) -> Mapping[str, Tensor]:
        return {**super().message(server), "last": remembered(server, LAST_MODEL)}

    def start(self, client: Client, message: Message) -> Correct:
        return carried_over(client, message["m"], message["last"], self.beta)

    def learn(self, server: Server, direction: Tensor, replies: int) -> None:
        super().learn(server, direction, replies)
        server.memory[LAST_MODEL] = server.x.clone()


def carried_over(client: Client, m: Tensor, last: Tensor, beta: float) -> Correct:
    """The correction g(y) <- g(y) + beta (m - g(last)) for m and last, [d] each; none in the first round, where m is
    zero."""
    m, last = m.to(client.state.x), last.to(client.state.x)

    def correct(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
        if gradient_at is not None and m.any():
            grad.add_(m - gradient_at(last), alpha=beta)

    return correct
