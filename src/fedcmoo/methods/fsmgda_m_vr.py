"""FSMGDA-M-VR: FSMGDA with momentum-based variance reduction for each objective."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Contribution
from fedcmoo.drift import LAST_MODEL, carried_over
from fedcmoo.messages import Field, Message, check
from fedcmoo.methods.fsmgda import FSMGDA, TrainEach
from fedcmoo.optimizers import SGD, Correct
from fedcmoo.rounds import Server
from fedcmoo.validation import below_one

DIRECTIONS = "fsmgda-m-vr"


@dataclass(frozen=True, kw_only=True)
class FSMGDAMVR(FSMGDA):
    """FSMGDA whose local steps for objective k are along g_{i,k}(y) + beta (m_k - g_{i,k}(x')).

    x' is the global model of the previous round, and m_k the mean direction of all its local steps for objective k.
    Both gradients are computed on the same batch. Clients are stateless; they upload M updates as in FSMGDA, receive (M
    + 1) d numbers in addition to x, and compute two gradients per step.

    Args:
        beta: the share of the old direction; 1 - beta in the paper.

    Deviation: the recursion is that of a public implementation; it has not been compared with the paper's text.

    References:
        Zhao, You, Dao and Peng. A momentum-based variance-reduced algorithm for federated multiobjective optimization.
        arXiv:2608.22945, 2026.
    """

    title: ClassVar[str] = "FSMGDA with momentum-based variance reduction for each objective"
    display_name = "FSMGDA-M-VR"

    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        below_one(beta=self.beta)
        if self.optimizer != SGD():
            raise ValueError(f"FSMGDA-M-VR needs clients with SGD without momentum, but got {self.optimizer}")

    def gradients(self, M: int) -> float:
        return 2 * super().gradients(M)  # also at the previous model

    def contributions(self) -> Mapping[str, Contribution]:
        return {"train": TrainEachMVR(*self.local, self.beta)}

    def message(self, server: Server) -> Message:
        zeros = server.x.new_zeros(server.sizes.M, server.sizes.d)
        return Message(m=server.memory.get(DIRECTIONS, zeros), last=server.memory.get(LAST_MODEL, server.x))

    def learn(self, server: Server, directions: Tensor) -> None:
        # Objectives that nobody in the cohort owns have no direction at this model: no correction in the next round.
        server.memory |= {DIRECTIONS: directions.nan_to_num(nan=0.0), LAST_MODEL: server.x.clone()}


@dataclass(frozen=True)
class TrainEachMVR(TrainEach):
    """FSMGDA's local training with a correction for each objective."""

    beta: float

    def corrections(self, client: Client, message: Message) -> Mapping[int, Correct]:
        d, dtype = client.sizes.d, client.sizes.dtype
        check(message, {"m": Field((client.sizes.M, d), dtype), "last": Field((d,), dtype)}, "the server")
        return {k: carried_over(client, m, message["last"], self.beta) for k, m in enumerate(message["m"])}
