"""Fairness between clients: every client, or every group of clients, becomes an objective."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

from torch import Tensor

from fedcmoo.data.base import Data, as_data
from fedcmoo.problem import Objective, Problem


def client_objectives(problem: Problem, groups: Sequence[str] | None = None) -> Problem:
    """The problem whose objectives are the losses of the clients, or of groups of clients.

    Objective k is F_k(x) = 1/P_k Σ_{i in group k} p_i f_i(x). A method that decreases all objectives then leaves no
    group behind. Test and validation data say nothing about single groups and are left out; `client_test` stays.

    Args:
        problem: a problem with one objective, whose model returns a tensor.
        groups: the name of each client's group; by default every client is a group, "client 0", "client 1", …

    >>> import torch
    >>> from torch import nn
    >>> clients = [(torch.randn(5, 2), torch.randn(5, 1)) for _ in range(3)]
    >>> problem = Problem(nn.Linear(2, 1), [Objective("error", nn.functional.mse_loss)], clients)
    >>> fair = client_objectives(problem, groups=["city", "city", "village"])
    >>> [objective.name for objective in fair.objectives], fair.share(2).owned
    (['city', 'village'], (False, True))
    """
    if problem.M != 1:
        raise ValueError(f"client_objectives needs a problem with one objective, but got {problem.M}")
    names = [f"client {i}" for i in range(problem.N)] if groups is None else list(groups)
    if len(names) != problem.N:
        raise ValueError(f"groups must have one name per client ({problem.N}), but has {len(names)}")
    only = problem.objectives[0]

    def renamed(clients: Sequence[Any]) -> Sequence[Any]:
        return _Renamed(clients, names, only, problem.collate)

    return replace(
        problem,
        objectives=[replace(only, name=name) for name in dict.fromkeys(names)],
        clients=renamed(problem.clients),
        owns=[[name] for name in names],
        test=None,
        validation=None,
        client_test=None if problem.client_test is None else renamed(problem.client_test),
    )


class _Renamed(Sequence[Any]):
    """Clients whose targets belong to their group's objective; data are looked up when a client is asked."""

    def __init__(
        self, clients: Sequence[Any], names: Sequence[str], objective: Objective, collate: Callable[[list[Any]], Any]
    ) -> None:
        self.clients, self.names, self.objective, self.collate = clients, names, objective, collate

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        source = self.clients[i]
        if source is None:  # a client without test data
            return None
        return _GroupData(as_data(source, self.collate), self.names[i], self.objective.name)


class _GroupData:
    """Data whose targets have the name of a group's objective."""

    def __init__(self, data: Data, name: str, before: str) -> None:
        self.data, self.name, self.before = data, name, before

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        inputs, targets = self.data.batch(index)
        if isinstance(targets, dict):
            targets = targets[self.before]
        elif isinstance(targets, (tuple, list)):
            (targets,) = targets
        return inputs, {self.name: targets}
