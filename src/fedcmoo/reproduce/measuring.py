"""FedCMOO that measures the progress of local training (appendix E.4), and FedCMOO-T the theorem's quantity."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.evaluation import columns, evaluate
from fedcmoo.failures import DivergedError
from fedcmoo.gram.base import gram_matrix
from fedcmoo.messages import Field, Message
from fedcmoo.methods import FSMGDA, FedCMOO, FedCMOOT
from fedcmoo.methods.fsmgda import TrainEach
from fedcmoo.methods.mgda import AllGradients
from fedcmoo.parameters import State
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Round, Server, Sizes
from fedcmoo.validation import at_least_one, positive
from fedcmoo.weights import min_norm

WAYS = ("FedCMOO", "FSMGDA", "FSMGDA at FedCMOO's client_lr")
"""The ways of local training compared. The last one has FedCMOO's step size; like all of FSMGDA's training, it draws
batches for each objective, so its noise is smaller."""


@dataclass(frozen=True, kw_only=True)
class LocalProgress(FedCMOO):
    """Unchanged FedCMOO whose clients, every few rounds, also train from the same model as with FSMGDA.

    Losses and accuracies on all of a client's own data, before and after its K local steps, are averaged over
    objectives and over the cohort. A client of FSMGDA ends with M models and contributes their weighted sum, so its end
    point is x - Σ_k w_k Δ_{i,k} with the min-norm weights of the round. The `notes` of the history contain "WAY: loss
    reduction" and "WAY: accuracy gain" for each of the `WAYS`, except those in which a client's training diverged.

    Args:
        fsmgda_client_lr: the clients' learning rate for FSMGDA on this problem.
        measure_every: rounds from one measurement to the next.
    """

    title: ClassVar[str] = "FedCMOO that measures what local training achieves"

    fsmgda_client_lr: float = 0.1
    measure_every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(fsmgda_client_lr=self.fsmgda_client_lr)
        at_least_one(measure_every=self.measure_every)

    def fsmgda(self) -> dict[str, FSMGDA]:
        """FSMGDA at both learning rates, by the phase in which its updates are requested."""
        common = {"local_steps": self.local_steps, "batch_size": self.batch_size, "optimizer": self.optimizer}
        rates = (self.fsmgda_client_lr, self.client_lr)
        return {f"fsmgda-{n}": FSMGDA(client_lr=lr, **common) for n, lr in enumerate(rates)}  # type: ignore[arg-type]

    def contributions(self) -> Mapping[str, Contribution]:
        others = {phase: UpdatesUnlessDiverged(*method.local) for phase, method in self.fsmgda().items()}
        return {**super().contributions(), **others, "measure": Measure(self)}

    def round(self, server: Server) -> Round:
        measured = server.round % self.measure_every == 0
        message = {}
        if measured:
            for phase in self.fsmgda():
                sums = (yield Ask({phase: Message()})).part(phase)
                G = gram_matrix(sums.mean("updates")[:, : server.sizes.d_shared])
                if not sums.mean("diverged") and np.isfinite(G).all():
                    message[phase] = torch.from_numpy(min_norm(G))
        before = (server.x.clone(), server.buffers, server.counters)
        yield from super().round(server)
        if measured:
            after = (server.x, server.buffers, server.counters)
            server.x, server.buffers, server.counters = before
            sums = (yield Ask({"measure": Message(w=torch.from_numpy(server.w), **message)})).part("measure")
            server.x, server.buffers, server.counters = after
            progress, diverged = sums.mean("progress").tolist(), sums.mean("diverged").tolist()
            for way, (reduction, gain), share in zip(WAYS, progress, diverged, strict=True):
                if not share:
                    server.notes |= {f"{way}: loss reduction": reduction, f"{way}: accuracy gain": gain}


@dataclass(frozen=True)
class UpdatesUnlessDiverged(TrainEach):
    """FSMGDA's M updates [M, d]; if local training diverges, they are zero and `diverged` [1] is 1."""

    def compute(self, client: Client, message: Message) -> Arrays:
        try:
            updates, _, _ = client.train_each(self.steps, self.lr, self.optimizer, self.batch_size)
        except DivergedError:
            return {"updates": client.state.x.new_zeros(client.problem.M, client.sizes.d), "diverged": torch.ones(1)}
        return {"updates": updates, "diverged": torch.zeros(1)}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"updates": Field((sizes.M, sizes.d), sizes.dtype), "diverged": Field((1,), torch.float32)}


@dataclass(frozen=True)
class Measure(Contribution):
    """Loss reduction and accuracy gain of training in each of the `WAYS` from x, [ways, 2].

    `diverged` [ways] is 1 for ways whose loss is not finite, or without weights in the message. Their progress is 0.
    """

    method: LocalProgress

    def compute(self, client: Client, message: Message) -> Arrays:
        model, method, own = client.model, self.method, client.state
        model.load(own)
        before = mean_scores(client)
        training = method.training(reuse_jacobian=False)
        client.train(message["w"].tolist(), training.steps, training.lr, training.optimizer, training.batch_size)
        ends = [mean_scores(client)]
        for phase, fsmgda in method.fsmgda().items():
            if phase not in message:
                ends.append(torch.full_like(before, torch.inf))
                continue
            lr, steps, batch_size, optimizer = fsmgda.local
            updates, buffers, counters = client.train_each(steps, lr, optimizer, batch_size)
            model.load(State(own.x - updates.T @ message[phase].to(updates), buffers, counters))
            ends.append(mean_scores(client))
        signs = torch.tensor([-1.0, 1.0], dtype=torch.float64)  # a loss falls, an accuracy rises
        progress = torch.stack([(end - before) * signs for end in ends])
        diverged = ~progress.isfinite().all(dim=1)
        return {"progress": progress.masked_fill(diverged[:, None], 0.0), "diverged": diverged.double()}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        ways = len(WAYS)
        return {"progress": Field((ways, 2), torch.float64), "diverged": Field((ways,), torch.float64)}


def mean_scores(client: Client) -> Tensor:
    """Mean loss and accuracy over objectives (0 without accuracies) of the worker's model on the client's data."""
    problem: Problem = client.problem
    totals, counts = evaluate(problem, client.model, client.data, 0, len(client.data))
    values = totals / counts
    by_metric = {"loss": values.new_zeros(()), "accuracy": values.new_zeros(())}
    for (_, metric), value in zip(columns(problem), values, strict=True):
        if metric in by_metric:
            by_metric[metric] = by_metric[metric] + value / problem.M
    return torch.stack([by_metric["loss"], by_metric["accuracy"]])


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
        "weights": {"name": "find-weights", "beta": 1 / (M * math.sqrt(T)), "iterations": 1, "scale_free": False},
    }
