"""The interface of Gram estimators, which estimate G = (1/n Σ h_i)^T (1/n Σ h_i) from the cohort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcmoo.contributions import Contribution
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.rounds import Ask, Server
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix, Vector

Estimate = Generator[Ask, Sums, tuple[Matrix, Sums]]
"""Asks the cohort; returns G, float64 [M, M], and the sums of the ask that included the other contributions."""

GRAM_SHARE = 0.125
"""The share of the Gram matrix in an upload that is divided between it and the update."""

JACOBIAN = "jacobian"
"""The name of an estimator's first contribution."""

ROUNDING = 1e-3
"""The tolerance for products of gradients in float32, relative to the largest."""

COLUMNS = 2**15
"""The number of columns multiplied at a time in a product of Jacobians."""


class Gram(ABC):
    """A variant of ApproxGramJacobian, which estimates the Gram matrix.

    `asks_cohort` says that every client of the cohort computes its Jacobian, so that local training can reuse it for
    the first step.
    """

    asks_cohort: ClassVar[bool] = True

    @abstractmethod
    def contributions(self, batch_size: int | None) -> Mapping[str, Contribution]:
        """The clients' contributions by name; a stochastic Jacobian uses `batch_size` samples."""

    def within(self, upload: float) -> Gram:
        """The estimator with an upload of a given multiple of d numbers; raises if its upload cannot be set."""
        raise ValueError(
            f"the whole upload can be set with gram = 'sketch', but gram is {type(self).__name__}; "
            "set its budget, update and update_budget one by one"
        )

    @abstractmethod
    def estimate(self, server: Server, *others: str) -> Estimate:
        """Estimate G over the shared parameters; `others` are contributions to request at the same time."""


class OnePhase(Gram):
    """An estimator with a single contribution, from whose sums it computes G."""

    @abstractmethod
    def contribution(self, batch_size: int | None) -> Contribution:
        """The clients' contribution."""

    @abstractmethod
    def combine(self, sums: Sums) -> Matrix:
        """G, float64 [M, M], from the sums of the contribution."""

    def message(self, server: Server) -> Message:
        """The message that clients are sent."""
        return Message()

    def contributions(self, batch_size: int | None) -> Mapping[str, Contribution]:
        return {JACOBIAN: self.contribution(batch_size)}

    def estimate(self, server: Server, *others: str) -> Estimate:
        sums = yield Ask({JACOBIAN: self.message(server), **dict.fromkeys(others, Message())})
        return self.combine(sums.part(JACOBIAN)), sums


def check_own(own: Tensor, sender: str, rest: Tensor | None = None) -> None:
    """Raise `BadMessageError` unless `own` (+ `rest`) is what h^T h of some h can be, up to rounding.

    It must be symmetric, and |g_jk|² <= g_jj g_kk by the Cauchy-Schwarz inequality. `own` is what a client sent, `rest`
    the part that the server already has, both [M, M].
    """
    own64 = own.double()
    G = own64 if rest is None else own64 + rest.double()
    norms = G.diagonal()
    # Both parts are rounded, and may be much larger than their sum.
    slack = ROUNDING * (own64.abs().amax() + (0 if rest is None else rest.double().abs().amax()))
    bound = norms.clamp(min=0).sqrt()
    if (G - G.T).abs().amax() > slack or norms.amin() < -slack or (G.abs() - torch.outer(bound, bound)).amax() > slack:
        raise BadMessageError(f"{sender}: 'own' must be the products of a client's gradients, but cannot be")


def check_gram(gram: Gram) -> None:
    """Raise unless it is an estimator, so that mistakes are found before work starts."""
    if not isinstance(gram, Gram):
        raise TypeError(f"gram must be an estimator such as Sketch(), but got {gram!r}")


def one_phase(gram: Gram) -> OnePhase:
    """Return the estimator; raises unless it has a single contribution that can be sent with the updates."""
    if not isinstance(gram, OnePhase):
        raise ValueError(
            f"trips = 1 needs a Gram estimator with one phase such as Sketch(), but {type(gram).__name__} has more; "
            "choose another estimator or trips = 2"
        )
    return gram


def columns(d: int) -> Iterator[slice]:
    """Slices that cut the columns of [M, d] into blocks, so that computations need no memory of that size."""
    for start in range(0, d, COLUMNS):
        yield slice(start, start + COLUMNS)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """a b^T in float64 [M, M], for gradients as rows [M, d] (the paper's A^T B): products of blocks of columns in the
    rows' precision, summed in float64."""
    if a.shape[1] <= COLUMNS:  # slicing takes longer than the product of small gradients
        return (a @ b.T).double()
    first, *others = ((a[:, block] @ b[:, block].T).double() for block in columns(a.shape[1]))
    return sum(others, first)


def gram_matrix(h: Tensor, noise: float | Vector = 0.0) -> Matrix:
    """G = h h^T, float64 [M, M], for gradients as rows [M, d].

    If N(0, noise²) was added to every entry of h, h h^T is too large by d noise² I on average, which is subtracted. The
    noise may have one standard deviation for each row, [M].
    """
    G: Matrix = inner(h, h).cpu().numpy()
    return G - h.shape[1] * noise**2 * np.eye(len(G)) if np.any(noise) else G
