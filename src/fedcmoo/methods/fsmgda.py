"""FSMGDA: federated stochastic multi-gradient descent, the baseline with M uploads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import gram_matrix
from fedcmoo.messages import Field, Message
from fedcmoo.methods.base import Method, buffer_fields, non_empty, reweigh, weighted_sum
from fedcmoo.optimizers import Correct, Optimizer
from fedcmoo.rounds import Ask, Round, Server, Sizes
from fedcmoo.settings import Named, registered
from fedcmoo.weights import WEIGHTS, MinNorm, Rule, check_rule


@dataclass(frozen=True, kw_only=True)
class FSMGDA(Method):
    """FSMGDA: each client trains once per objective and uploads M updates, which the server weights (section 3).

    Args:
        weights: the rule on the Gram matrix of the averaged updates; the min-norm solution in the paper.

    References:
        Yang, Liu, Liu, Dong, Zhang and Liu. Federated Multi-Objective Learning. NeurIPS 2023.
    """

    title: ClassVar[str] = "local training for each objective alone, M uploads, min-norm weights at the server"

    weights: Named[Rule] = registered(MinNorm(), WEIGHTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.weights)

    def gradients(self, M: int) -> float:
        return M * self.local_steps

    def contributions(self) -> Mapping[str, Contribution]:
        return {"train": TrainEach(*self.local)}

    def round(self, server: Server) -> Round:
        sums = yield Ask({"train": self.message(server)})  # K local steps for each objective: M updates a client
        sums = sums.part("train")
        updates = sums.objective_mean("updates")  # Δ_k, averaged over clients: [M, d]
        scale = self.local_steps * self.client_lr
        self.learn(server, updates / scale)
        G = gram_matrix(updates[:, : server.sizes.d_shared] / scale, sums.objective_noise("updates") / scale)
        reweigh(server, self.weights, G)
        self.descend(server, weighted_sum(updates, server.w), sums)  # x <- x - η_s Σ_k w_k Δ_k

    def message(self, server: Server) -> Message:
        """The message to clients, in addition to x."""
        return Message()

    def learn(self, server: Server, directions: Tensor) -> None:
        """Called with the objectives' mean directions of all local steps [M, d]."""


@dataclass(frozen=True)
class TrainEach(Contribution):
    """The M updates [M, d] of K local steps on each objective alone, all from the same x."""

    lr: float
    steps: int
    batch_size: int | None
    optimizer: Optimizer

    update: ClassVar[str] = "updates"

    def compute(self, client: Client, message: Message) -> Arrays:
        corrections = self.corrections(client, message)
        updates, buffers, counters = client.train_each(
            self.steps, self.lr, self.optimizer, self.batch_size, corrections
        )
        return {"updates": updates, **non_empty(buffers=buffers, counters=counters)}

    def corrections(self, client: Client, message: Message) -> Mapping[int, Correct]:
        """The corrections of the gradients of local steps, by objective; none in FSMGDA."""
        return {}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"updates": Field((sizes.M, sizes.d), sizes.dtype), **buffer_fields(sizes)}
