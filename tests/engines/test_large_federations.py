"""Ten thousand clients cost what a hundred do: only the data of the client at work is there."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, cast

import torch

from fedcmoo import FedCMOO, fit
from fedcmoo.data.base import TensorData
from fedcmoo.engines import Local
from tests.core.problems import classification


class LazyClients:
    """Clients whose data are made when they are asked for; it counts those that are alive."""

    def __init__(self, n: int) -> None:
        self.n, self.loaded, self.most_alive = n, 0, 0
        self._alive: weakref.WeakSet[TensorData] = weakref.WeakSet()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> TensorData:
        draws = torch.Generator().manual_seed(i)
        labels = torch.randint(3, (2, 20), generator=draws)
        data = TensorData(torch.randn(20, 6, generator=draws), (labels[0], labels[1]))
        self._alive.add(data)
        self.loaded += 1
        self.most_alive = max(self.most_alive, len(self._alive))
        return data


def test_only_the_client_at_work_is_in_memory() -> None:
    clients = LazyClients(10_000)
    problem = replace(classification(), clients=cast(Any, clients))
    fit(problem, FedCMOO(local_steps=2, batch_size=8), 3, clients_per_round=4, engine=Local())
    asked = 3 * 4 * 2  # rounds, cohort, phases
    assert clients.loaded <= asked + 12 + 1  # once more to see what a client owns, and one to check the problem
    assert clients.most_alive <= 2  # the one at work, and the one before it in the moment of the change
