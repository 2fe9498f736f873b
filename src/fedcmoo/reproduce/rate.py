"""FedCMOO-T that measures the quantity bounded by the theorem, with the step sizes of corollary 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedcmoo.contributions import Contribution
from fedcmoo.messages import Message
from fedcmoo.methods import FedCMOOT
from fedcmoo.methods.mgda import AllGradients
from fedcmoo.rounds import Ask, Round, Server
from fedcmoo.validation import at_least_one

NOTE = "true squared norm"
"""The name of ||Σ_k w_k ∇F_k(x)||² in the history's notes."""


@dataclass(frozen=True, kw_only=True)
class MeasuredFedCMOOT(FedCMOOT):
    """Unchanged FedCMOO-T that measures ||Σ_k w_k^(t) ∇F_k(x^(t))||² on all clients' full data every few rounds.

    Each measured round is in the middle of the interval it represents: at the beginning, while the norm falls, it would
    overestimate the interval's mean.

    Args:
        measure_every: rounds from one measurement to the next.
    """

    title: ClassVar[str] = "FedCMOO-T that measures the true squared norm of the weighted gradient"

    measure_every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(measure_every=self.measure_every)

    def contributions(self) -> Mapping[str, Contribution]:
        return {**super().contributions(), "everyone": AllGradients(batch_size=None)}

    def round(self, server: Server) -> Round:
        if server.round % self.measure_every == self.measure_every // 2:
            J = (yield Ask({"everyone": Message()}, clients=server.everyone)).mean("everyone/J")
            weighted = torch.from_numpy(server.w) @ J.double()
            server.notes[NOTE] = float(weighted @ weighted)
        yield from super().round(server)


def step_sizes(L: float, K: int, M: int, T: int) -> dict[str, Any]:
    """Corollary 1: η_c = 1 / (L K sqrt(K T)), η_s = sqrt(K), β = 1 / (M sqrt(T)), as settings of the method.

    >>> step_sizes(L=2.0, K=4, M=2, T=100)["client_lr"]
    0.00625
    """
    return {
        "client_lr": 1 / (L * K * math.sqrt(K * T)),
        "server_lr": math.sqrt(K),
        "local_steps": K,
        "weights": {
            "name": "find-weights",
            "beta": 1 / (M * math.sqrt(T)),
            "iterations": 1,
            "scale_free": False,
        },
    }
