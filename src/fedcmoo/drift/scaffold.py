"""SCAFFOLD: each client remembers how its direction differs from the others', and subtracts the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client, Correct, GradientAt
from fedcmoo.drift.base import Drift, remembered
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Server, Sizes

VARIATE = "scaffold"


@dataclass(frozen=True)
class Scaffold(Drift):
    """Local steps along g_i - c_i + c, with the control variates c_i of the clients and their mean c.

    After K steps from x to y_i, with n of N clients in the cohort (option II of the paper):

        c_i <- c_i - c + (x - y_i) / (K η_c)        c <- c + n/N (mean_i (x - y_i) / (K η_c) - c)

    The second formula is the mean of the first over clients, which the server computes from the mean update alone:
    clients upload nothing extra, keep d numbers, and are sent d numbers besides the model.

    With changing weights, c_i estimates Σ_k w_k ∇f_{i,k} with the weights of the round in which client i last took
    part. The corrections c - c_i of all clients add up to zero whatever those weights were, so old weights do not pull
    the model towards an objective. But some drift remains: a client's direction differs from that with exact variates
    by Σ_k (w_k - w'_k) (∇f_{i,k} - ∇F_k), which is proportional to the change of the weights and vanishes with it.

    References:
        Karimireddy, Kale, Mohri, Reddi, Stich and Suresh. SCAFFOLD: Stochastic controlled averaging for federated
        learning. ICML 2020.
    """

    plain_steps: ClassVar[bool] = True

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"c": Field((sizes.d,), sizes.dtype)}

    def message(self, server: Server) -> Mapping[str, Tensor]:
        return {"c": remembered(server, VARIATE)}

    def start(self, client: Client, message: Message) -> Correct:
        x = client.state.x
        difference = message["c"].to(x)
        if VARIATE in client.memory:
            difference = difference - client.memory[VARIATE].to(x)

        def correct(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
            grad.add_(difference)

        return correct

    def finish(self, client: Client, message: Message, direction: Tensor) -> None:
        c_i = direction - message["c"].to(direction)
        if VARIATE in client.memory:
            c_i += client.memory[VARIATE].to(direction)
        client.new_memory = {**(client.new_memory or client.memory), VARIATE: c_i}

    def learn(self, server: Server, direction: Tensor, replies: int) -> None:
        server.memory[VARIATE] = remembered(server, VARIATE).lerp(direction, replies / server.N)
