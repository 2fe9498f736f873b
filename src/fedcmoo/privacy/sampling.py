"""Sampling of the cohorts of a private run, and the resulting privacy loss of rounds.

The noise multiplier z of a round is σ / C, the standard deviation of the noise over the clipping bound of one client.
Cohorts are drawn from the operating system's randomness: amplification by sampling requires that the cohorts are
secret, and every node knows the seed of the run.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import SystemRandom
from typing import Any

from fedcmoo.optional import require
from fedcmoo.types import Vector

INTERVAL = 1e-3
"""Grid of the discretized privacy loss. Rounding is upwards; a grid ten times finer changes ε by less than 0.02 %."""


@dataclass(frozen=True)
class Sampling(ABC):
    """A way to draw cohorts, and its accountant.

    Args:
        N: the number of all clients.
        n: the size of a cohort, or its expectation. Sums are divided by n, regardless of who replied.
    """

    N: int
    n: int

    def __post_init__(self) -> None:
        if not 1 <= self.n <= self.N:
            raise ValueError(f"a cohort must have from 1 to {self.N} clients, as many as there are, but got {self.n}")

    @abstractmethod
    def draw(self) -> tuple[int, ...]:
        """One cohort, in ascending order."""

    @abstractmethod
    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """ε at δ after `rounds`, the number of rounds with each noise multiplier."""


@dataclass(frozen=True)
class Poisson(Sampling):
    """Each client takes part with probability n / N, independently of the others; a cohort may even be empty.

    The guarantee makes it hard to distinguish two federations of which one has one client more.

    The accountant composes privacy loss distributions, which is exact up to its grid.

    References:
        Koskela, Jälkö and Honkela. Computing tight differential privacy guarantees using FFT. AISTATS 2020.
        Doroshenko, Ghazi, Kamath, Kumar and Manurangsi. Connect the dots: tighter discrete approximations of privacy
        loss distributions. PoPETs 2022.
    """

    def draw(self) -> tuple[int, ...]:
        random, q = SystemRandom(), self.n / self.N
        return tuple(i for i in range(self.N) if random.random() < q)

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        parts = [_poisson_loss(self.n / self.N, z).self_compose(count) for z, count in rounds.items() if count]
        if not parts:
            return 0.0
        total, *others = parts
        for part in others:
            total = total.compose(part)
        return float(total.get_epsilon_for_delta(delta))


@dataclass(frozen=True)
class FixedSize(Sampling):
    """n of the N clients, uniformly without replacement.

    The guarantee makes it hard to distinguish two federations that differ in one client. Replacing one changes a sum by
    up to 2 C, so the accountant uses the noise multiplier z / 2. The known bounds for this kind of sampling are far
    from tight: `Poisson` gives a much smaller ε for the same noise.

    References:
        Wang, Balle and Kasiviswanathan. Subsampled Rényi differential privacy and analytical moments accountant.
        AISTATS 2019.
    """

    def draw(self) -> tuple[int, ...]:
        return tuple(sorted(SystemRandom().sample(range(self.N), self.n)))

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        accountant = require("dp_accounting.rdp", "privacy").RdpAccountant
        total = sum(count * _fixed_size_rdp(self.N, self.n, z) for z, count in rounds.items() if count)
        if isinstance(total, int):
            return 0.0
        epsilon, _ = require("dp_accounting.rdp", "privacy").compute_epsilon(accountant().orders, total, delta)
        return float(epsilon)


@cache
def _poisson_loss(q: float, z: float) -> Any:
    """The privacy loss distribution of one round."""
    pld = require("dp_accounting.pld", "privacy").privacy_loss_distribution
    return pld.from_gaussian_mechanism(standard_deviation=z, sampling_prob=q, value_discretization_interval=INTERVAL)


@cache
def _fixed_size_rdp(N: int, n: int, z: float) -> Vector:
    """The Rényi divergences of one round, at the accountant's orders."""
    dp = require("dp_accounting", "privacy")
    relation = dp.NeighboringRelation.REPLACE_ONE
    event = dp.SampledWithoutReplacementDpEvent(N, n, dp.GaussianDpEvent(z / 2))
    accountant = require("dp_accounting.rdp", "privacy").RdpAccountant(neighboring_relation=relation)
    rdp: Vector = accountant.compose(event).rdp
    return rdp


SAMPLINGS: dict[str, type[Sampling]] = {"poisson": Poisson, "fixed-size": FixedSize}
"""By name, for configurations."""
