"""Corrections of local steps that keep clients with different data from drifting apart within a round."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.messages import Field, Message
from fedcmoo.optimizers import Correct, GradientAt
from fedcmoo.rounds import Server, Sizes
from fedcmoo.validation import below_one, positive

MOMENTUM, LAST_MODEL, VARIATE = "fedcm", "last-model", "scaffold"
"""The names of vectors in the memories of the server and, with SCAFFOLD, of the clients."""


@dataclass(frozen=True)
class Drift:
    """A correction of the gradients of clients' local steps; this base class corrects nothing.

    Clients upload nothing for a correction: the server only learns the mean of x - x_i over the cohort. Divided
    by K η_c, this is the mean direction of all local steps of the round.
    """

    plain_steps: ClassVar[bool] = False
    """Whether it needs clients whose steps are η_c times the direction, i.e. SGD without momentum."""
    pairs: ClassVar[bool] = False
    """Whether it needs each batch's gradient at another point too, so that no step can reuse that of phase one."""
    gradients_per_step: ClassVar[int] = 1
    """The number of gradients that a client computes in a local step."""
    exact_sums: ClassVar[bool] = False
    """Whether the mean update must be exact and that of equally weighted clients."""

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """The shapes of the arrays that clients are sent besides the model and the weights."""
        return {}

    def message(self, server: Server) -> Mapping[str, Tensor]:
        """The arrays of `fields`."""
        return {}

    def start(self, client: Client, message: Message) -> Correct | None:
        """The function that changes the gradient of every local step; None for no change."""
        return None

    def finish(self, client: Client, message: Message, direction: Tensor) -> None:
        """Called with the mean direction of the client's steps [d]; updates the client's memory."""

    def learn(self, server: Server, direction: Tensor, replies: int) -> None:
        """Called with the mean direction of the cohort [d], and the number of its clients."""


def remembered(server: Server, name: str) -> Tensor:
    """A vector [d] in the server's memory; zero before the first round."""
    return server.memory[name] if name in server.memory else server.x.new_zeros(server.sizes.d)


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
            grad.add_(y[: len(x)] - x, alpha=self.mu)

        return pull_back


@dataclass(frozen=True)
class FedCM(Drift):
    """Local steps along (1 - beta) g_i + beta m, where m is the mean direction of all local steps of the last round.

    Clients keep no state and upload nothing extra. Since m is computed recursively, it is an exponential average of the
    weighted gradients of many cohorts, with less noise and common to all clients. In the first round steps are along
    g_i alone.

    As the model converges, m vanishes. With all clients in every round and exact gradients, it ends where runs without
    m and with the rate (1 - beta) η_c end: clients drift as with this smaller rate, while rounds make steps of K η_c m.

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


@dataclass(frozen=True)
class Storm(FedCM):
    """Local steps along v, which starts from the direction m that the server sends and is updated in every step.

        v_0 = (1 - beta) g(y_0) + beta m        v_k = g(y_k) + beta (v_{k-1} - g(y_{k-1}))

    Both gradients of the second formula are of the same batch, so their difference is small if the steps are, and v has
    less noise than g. m is the mean of all v of the last round. Clients keep no state and upload nothing extra, but
    compute two gradients per step.

    With changing weights, the new weights take effect faster than in `FedCM`, since v also forgets m within a round:
    the share of m in the mean of K steps is beta (1 - beta^K) / (K (1 - beta)), which is 0.59 for beta = 0.9 and
    K = 10.

    Args:
        beta: 1 - a in STORM's paper: the share of the old direction.

    References:
        Cutkosky and Orabona. Momentum-based variance reduction in non-convex SGD. NeurIPS 2019.
        Khanduri, Sharma, Yang, Hong, Liu, Rajawat and Varshney. STEM: A stochastic two-sided momentum algorithm
        achieving near-optimal sample and communication complexities for federated learning. NeurIPS 2021.
    """

    gradients_per_step: ClassVar[int] = 2

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


@dataclass(frozen=True)
class MVR(FedCM):
    """Local steps along g_i(y) + beta (m - g_i(x')), where x' is the global model of the previous round.

    m is the mean direction of all local steps of that round, as in `FedCM`. Both gradients are of the same batch, so
    the deviations of the batch and of the cohort's clients largely cancel and are replaced by m. Clients keep no state
    and upload nothing extra, are sent x' and m besides x, and compute two gradients per step. In the first round
    steps are along g_i alone.

    With changing weights, m belongs to the weights w' of the previous round, and g_i(x') to those of this round: the
    direction has an error of beta Σ_k (w'_k - w_k) ∇F_k, which vanishes as the weights settle. If nobody in the last
    cohort owned an objective, m lacks it, which has the effect of w'_k = 0.

    Args:
        beta: the share of the old direction; 1 - beta in the paper.

    References:
        Cheng, Huang, Wu and Yuan. Momentum benefits non-IID federated learning simply and provably. ICLR 2024.
        (FedAvg-M-VR.)
    """

    pairs: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 2

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

    Any difference between the server's mean and that of the clients' updates would stay in c for ever. So compression,
    clipping, robust means, secure sums of fewer than 32 bits and different weights of clients are refused.

    References:
        Karimireddy, Kale, Mohri, Reddi, Stich and Suresh. SCAFFOLD: Stochastic controlled averaging for federated
        learning. ICML 2020.
    """

    plain_steps: ClassVar[bool] = True
    exact_sums: ClassVar[bool] = True

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


DRIFT: dict[str, type[Drift]] = {
    "none": Drift,
    "fedprox": FedProx,
    "fedcm": FedCM,
    "scaffold": Scaffold,
    "storm": Storm,
    "mvr": MVR,
}
"""All corrections, by name."""
