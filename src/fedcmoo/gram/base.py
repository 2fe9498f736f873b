"""What a Gram estimator is: a way for the server to learn G = (1/n Σ h_i)^T (1/n Σ h_i) from its cohort."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from typing import Protocol

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.compression import NUMBER
from fedcmoo.messages import Field, Message, check
from fedcmoo.rounds import Ask, Server, Sums, Task
from fedcmoo.types import Matrix

Estimate = Generator[Ask, Sums, Matrix]
"""Asks the cohort what the estimator needs, and returns G, float64 [M, M]."""

COLUMNS = 2**15
"""Columns of a product of Jacobians that are taken at a time."""


class Gram(Protocol):
    """ApproxGramJacobian in one of its variants.

    `sums_only` says that the server needs nothing but sums over clients of what they send, as secure aggregation gives
    it. `asks_cohort` says that every client of the cohort computes its Jacobian on the way, so that local training can
    take its first step from it.
    """

    @property
    def sums_only(self) -> bool: ...

    @property
    def asks_cohort(self) -> bool: ...

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        """What clients do in this estimator's phases; a stochastic Jacobian takes `batch_size` samples."""

    def estimate(self, server: Server) -> Estimate:
        """One estimate of G over the shared parameters."""


def check_gram(gram: Gram) -> None:
    """Raise unless it is an estimator, so that it shows before work starts."""
    if isinstance(gram, type) or not hasattr(gram, "estimate"):
        raise TypeError(f"gram must be an estimator such as Sketch(), but got {gram!r}; names are for RunConfig")


def shared_jacobian(client: Client, batch_size: int | None) -> Tensor:
    """h_i over the shared parameters: [M, d]. A view into the worker's memory: read it, and do not keep it."""
    return client.jacobian(batch_size)[:, : client.model.d_shared]


def columns(d: int) -> Iterator[slice]:
    """The columns of [M, d] in blocks, so that what is computed from them needs no memory of that size."""
    for start in range(0, d, COLUMNS):
        yield slice(start, start + COLUMNS)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """a b^T in float64 [M, M], of gradients as rows [M, d] (the paper's A^T B): products of blocks of columns in the
    rows' own precision, added up in float64."""
    if a.shape[1] <= COLUMNS:  # slicing takes longer than the product of small gradients
        return (a @ b.T).double()
    first, *others = ((a[:, block] @ b[:, block].T).double() for block in columns(a.shape[1]))
    return sum(others, first)


def gram_matrix(h: Tensor) -> Matrix:
    """G = h h^T, float64 [M, M], of gradients as rows [M, d]."""
    G: Matrix = inner(h, h).cpu().numpy()
    return G


def take_square(reply: Message, name: str, M: int, sender: str) -> tuple[Tensor, Message]:
    """Take the [M, M] matrix of this name out of a reply, checked; returns it and what is left of the reply."""
    check(Message(**{n: array for n, array in reply.items() if n == name}), {name: Field((M, M))}, sender)
    return reply[name], Message(**{n: array for n, array in reply.items() if n != name})


def check_budget(budget: float) -> None:
    """Raise unless a budget is a positive number."""
    if not 0 < budget < math.inf:
        raise ValueError(f"budget must be positive and finite (1 is one model's worth of numbers), but got {budget}")


def budget_bytes(budget: float, d: int) -> int:
    """A budget in multiples of d numbers, as bytes."""
    return math.floor(budget * d) * NUMBER
