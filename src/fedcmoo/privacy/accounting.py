"""The privacy budget of a run: the noise for a target, ε so far, and whether another round would exceed the budget.

A round releases several sums over one cohort. Sum c has noise multiplier z_c, and together they are as private as one
Gaussian mechanism with

    z = (Σ_c z_c^-2)^-1/2.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fedcmoo.privacy.sampling import Sampling
from fedcmoo.validation import positive

TOLERANCE = 0.01
"""The tolerance of calibration: a run leaves at most this share of its ε unused, and never exceeds ε."""


def effective_multiplier(multipliers: Iterable[float]) -> float:
    """The noise multiplier of a single Gaussian mechanism that is as private as all of these together on one cohort.

    >>> effective_multiplier([2.0, 2.0])
    1.4142135623730951
    """
    return float(sum(z**-2.0 for z in multipliers) ** -0.5)


def calibrate(sampling: Sampling, epsilon: float, delta: float, rounds: Mapping[float, int]) -> float:
    """The smallest noise multiplier, to within 1 % of ε, with which `rounds` meet (ε, δ).

    Args:
        sampling: how cohorts are drawn.
        epsilon, delta: the target.
        rounds: the number of rounds of each kind, by their noise in multiples of the result: {1.0: 100} for a hundred
            equal rounds.
    """
    from scipy.optimize import brentq  # imported here since it is slow to import and clients never need it

    check_target(epsilon, delta)
    if not rounds or min(rounds.values()) < 1 or min(rounds) <= 0:
        raise ValueError(f"rounds must be positive counts of rounds with positive noise, but got {dict(rounds)}")

    def excess(log_z: float) -> float:
        noise = {factor * math.exp(log_z): count for factor, count in rounds.items()}
        return sampling.epsilon(noise, delta) - epsilon * (1 - TOLERANCE / 2)

    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, high + 1
    while excess(low) < 0:
        low, high = low - 1, low
    return math.exp(brentq(excess, low, high, xtol=TOLERANCE / 10))


def check_target(epsilon: float, delta: float) -> None:
    """Raise unless (ε, δ) is a valid target."""
    positive(epsilon=epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, far below 1 / (number of clients), but got {delta}")


@dataclass
class Accountant:
    """The number of rounds of a run released with each noise multiplier, and their privacy cost within a budget."""

    sampling: Sampling
    epsilon: float
    delta: float
    rounds: Counter[float] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)

    @property
    def spent(self) -> float:
        """ε at δ of all rounds so far."""
        return _epsilon(self.sampling, tuple(sorted(self.rounds.items())), self.delta)

    def would_exceed(self, multiplier: float) -> bool:
        """Whether another round with this noise multiplier would cost more than the budget."""
        rounds = self.rounds + Counter([multiplier])
        return _epsilon(self.sampling, tuple(sorted(rounds.items())), self.delta) > self.epsilon

    def add(self, multiplier: float) -> None:
        """Account for a round. This must be called, and the result saved, before anything of the round is released."""
        self.rounds[multiplier] += 1


@lru_cache(maxsize=8)
def _epsilon(sampling: Sampling, rounds: tuple[tuple[float, int], ...], delta: float) -> float:
    """ε at δ of these rounds; a run needs it before and after each round."""
    return sampling.epsilon(dict(rounds), delta)
