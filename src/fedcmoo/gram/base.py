"""What a Gram estimator is: a way for the server to learn G = (1/n Σ h_i)^T (1/n Σ h_i) from its cohort."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import ClassVar, Protocol

from fedcmoo.rounds import Ask, Server, Sums, Task
from fedcmoo.types import Matrix

Estimate = Generator[Ask, Sums, Matrix]
"""Asks the cohort what the estimator needs, and returns G, float64 [M, M]."""


class Gram(Protocol):
    """ApproxGramJacobian in one of its variants. `sums_only` says that the server needs nothing but sums over
    clients of what they send, as secure aggregation gives it."""

    sums_only: ClassVar[bool]

    def tasks(self, batch_size: int | None) -> Mapping[str, Task]:
        """What clients do in this estimator's phases; a stochastic Jacobian takes `batch_size` samples."""

    def estimate(self, server: Server) -> Estimate:
        """One estimate of G over the shared parameters."""
