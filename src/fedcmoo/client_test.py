"""Evaluation at the clients: each sends the losses and metrics of the model, with its private part, on its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Channel, Channels, Contribution
from fedcmoo.evaluation import columns, evaluate
from fedcmoo.failures import DivergedError
from fedcmoo.messages import Field, Message
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

NAME = "client-test"
"""The name of the contribution."""


@dataclass(frozen=True)
class ClientTest(Contribution):
    """A client's totals over the samples of its test data and the numbers of labelled samples, each [1, columns], where
    the columns are those of `evaluation.columns`."""

    columns: int

    summable: ClassVar[bool] = False

    def compute(self, client: Client, message: Message) -> Arrays:
        problem, data = client.problem, client.problem.client_test_data(client.i)
        totals, counts = torch.zeros(2, self.columns, dtype=torch.float64)
        if data is not None:
            client.model.load(client.state)
            _, targets = data.batch(torch.arange(1))
            which = [k for k in range(problem.M) if problem.has_target(targets, k)]
            totals, counts = evaluate(problem, client.model, data, 0, len(data), which)
        for n, (objective, metric) in enumerate(columns(problem)):
            if not totals[n].isfinite():
                if metric == "loss":
                    raise DivergedError(f"the test loss of objective {objective!r} became NaN or infinite at {client}")
                totals[n] = counts[n] = 0  # a metric that these samples do not define
        return {"totals": totals[None], "counts": counts[None]}

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        field = Field((1, self.columns), torch.float64, add="each", clippable=False)
        return {"totals": field, "counts": field}


def with_client_test(channels: Channels, problem: Problem) -> Channels:
    """The channels of a run, including that of the clients' evaluation if the problem has test data for it."""
    if problem.client_test is None:
        return channels
    return {**channels, NAME: Channel(ClientTest(len(columns(problem))))}
