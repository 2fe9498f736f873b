"""FedMGDA+: multi-gradient descent over clients, where each client is an objective."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch.nn.functional import normalize

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import gram_matrix
from fedcmoo.messages import Field, Message
from fedcmoo.methods.base import LocalTraining
from fedcmoo.methods.fedavg import FedAvg
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.weights import NearEqual


@dataclass(frozen=True, kw_only=True)
class FedMGDAPlus(FedAvg):
    """FedAvg whose server takes the common descent direction of the clients' normalized updates.

        g_i = Δ_i / ||Δ_i||        λ = argmin ||Σ_i λ_i g_i||² over the simplex, |λ_i - 1/n| <= epsilon
        x <- x - η_s Σ_i λ_i g_i

    Clients with small losses, or with many samples, do not outweigh the others, and a client with a wrong update has at
    most the weight 1/n + epsilon. A round's step is no longer than η_s, so η_s must be small, or decay, for the model
    to converge. Clients' weights p_i have no effect, and clients without an update (that own no objective) are left
    out. The server holds all n updates of a cohort at once. The history's `notes` contain the smallest and largest λ_i.

    Args:
        weights: the weights of the objectives in a client's loss; None for equal weights.
        epsilon: how far λ may be from equal weights: 0 for averaging normalized updates, 1 for MGDA.

    References:
        Hu, Shaloudegi, Zhang and Yu. Federated learning meets multi-objective optimization. IEEE Transactions on
        Network Science and Engineering, 2022.
    """

    title: ClassVar[str] = "every client an objective: min-norm weights, near equal ones, of normalized updates"
    display_name = "FedMGDA+"

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        NearEqual(self.epsilon)  # find an invalid epsilon before work starts

    def contributions(self) -> Mapping[str, Contribution]:
        return {"train": EachUpdate(**vars(self.training(reuse_jacobian=False)))}

    def finish(self, server: Server, sums: Sums) -> None:
        updates = sums["update"]  # [n, d]
        self.learn_drift(server, updates.mean(dim=0), sums)
        g = normalize(updates[updates.any(dim=1)], dim=1)
        if len(g) == 0:
            return
        weights = NearEqual(self.epsilon)(np.full(len(g), 1 / len(g)), gram_matrix(g))
        server.notes |= {"smallest_client_weight": weights.min(), "largest_client_weight": weights.max()}
        self.descend(server, g.T @ torch.from_numpy(weights).to(g), sums)


class EachUpdate(LocalTraining):
    """The update of K local steps, which the server receives separately from each client: [1, d]."""

    summable: ClassVar[bool] = False

    def compute(self, client: Client, message: Message) -> Arrays:
        arrays = super().compute(client, message)
        return {**arrays, "update": arrays["update"][None]}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {**super().fields(sizes), "update": Field((1, sizes.d), sizes.dtype, add="each")}
