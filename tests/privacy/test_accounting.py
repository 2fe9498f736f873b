"""Accounting and calibration against dp-accounting called by hand."""

from __future__ import annotations

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from fedcmoo.privacy.accounting import Accountant, calibrate, effective_multiplier
from fedcmoo.privacy.sampling import FixedSize, Poisson, Sampling

DELTA = 1e-5


def by_hand(sampling: Sampling, rounds: list[tuple[float, ...]]) -> float:
    """ε of these rounds, each with the noise multipliers of its releases, as one would ask dp-accounting for it."""
    if isinstance(sampling, Poisson):
        accountant = PLDAccountant(value_discretization_interval=1e-3)
    else:
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    for releases in sorted(set(rounds)):
        if isinstance(sampling, Poisson):
            one = dp.GaussianDpEvent(sum(z**-2 for z in releases) ** -0.5)
            event = dp.PoissonSampledDpEvent(sampling.n / sampling.N, one)
        else:  # to replace a client changes a sum by twice the bound
            gaussians = dp.ComposedDpEvent([dp.GaussianDpEvent(z / 2) for z in releases])
            event = dp.SampledWithoutReplacementDpEvent(sampling.N, sampling.n, gaussians)
        accountant.compose(event, rounds.count(releases))
    return float(accountant.get_epsilon(DELTA))


SETTINGS: dict[str, tuple[Sampling, list[tuple[float, ...]]]] = {
    "Poisson, one release": (Poisson(1000, 50), [(1.5,)] * 40),
    "Poisson, two releases, the first in every other round": (Poisson(200, 20), [(6.0, 3.0), (3.0,)] * 15),
    "fixed size, two releases": (FixedSize(500, 10), [(4.0, 2.5)] * 60),
    "fixed size, everybody": (FixedSize(30, 30), [(20.0, 40.0, 80.0)] * 25),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_agrees_with_dp_accounting(name: str) -> None:
    sampling, rounds = SETTINGS[name]
    accountant = Accountant(sampling, epsilon=1000.0, delta=DELTA)
    for releases in rounds:
        accountant.add(effective_multiplier(releases))
    assert accountant.spent == pytest.approx(by_hand(sampling, rounds), abs=1e-6)


@pytest.mark.parametrize(
    ("sampling", "epsilon", "rounds"),
    [
        (Poisson(1000, 100), 2.0, {1.0: 100}),
        (Poisson(10, 10), 8.0, {1.0: 5}),
        (FixedSize(1000, 20), 4.0, {1.0: 50}),
        (Poisson(300, 30), 3.0, {1.0: 10, 1.25: 30}),
    ],
)
def test_calibration_spends_the_target_within_one_percent(
    sampling: Sampling, epsilon: float, rounds: dict[float, int]
) -> None:
    z = calibrate(sampling, epsilon, DELTA, rounds)
    spent = by_hand(sampling, [(factor * z,) for factor, count in rounds.items() for _ in range(count)])
    assert 0.99 * epsilon <= spent <= epsilon


def test_the_round_that_would_exceed_the_budget_is_known_before() -> None:
    sampling = Poisson(100, 10)
    z = calibrate(sampling, 1.0, DELTA, {1.0: 12})
    accountant = Accountant(sampling, epsilon=1.0, delta=DELTA)
    while not accountant.would_exceed(z):
        accountant.add(z)
    assert accountant.rounds.total() == 12
    assert accountant.spent <= 1.0 < by_hand(sampling, [(z,)] * 13)


def test_gaussian_mechanism_without_sampling_has_its_closed_form() -> None:
    """Balle and Wang 2018, theorem 8: δ = Φ(1/2z - εz) - e^ε Φ(-1/2z - εz)."""
    from math import erf, exp, sqrt

    def phi(x: float) -> float:
        return (1 + erf(x / sqrt(2))) / 2

    z = 2.0
    epsilon = Poisson(10, 10).epsilon({z: 1}, DELTA)
    delta = phi(1 / (2 * z) - epsilon * z) - exp(epsilon) * phi(-1 / (2 * z) - epsilon * z)
    assert delta == pytest.approx(DELTA, rel=1e-3)


def test_no_round_costs_nothing() -> None:
    assert Poisson(10, 2).epsilon({}, DELTA) == FixedSize(10, 2).epsilon({}, DELTA) == 0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (float("inf"), 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_impossible_targets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        calibrate(Poisson(10, 2), epsilon, delta, {1.0: 10})


def test_cohorts_have_the_distribution_that_is_accounted_for() -> None:
    drawn = [Poisson(50, 10).draw() for _ in range(2000)]
    sizes = [len(cohort) for cohort in drawn]
    mean = sum(sizes) / len(sizes)
    variance = sum((s - mean) ** 2 for s in sizes) / len(sizes)
    assert mean == pytest.approx(10, abs=0.35)  # five standard errors of a binomial of 50 and 1/5
    assert variance == pytest.approx(8, abs=1.5)
    fixed = [FixedSize(50, 10).draw() for _ in range(2000)]
    assert {len(set(cohort)) for cohort in fixed} == {10}
    counts = [sum(i in cohort for cohort in fixed) for i in range(50)]
    assert all(abs(count - 400) < 100 for count in counts)  # 5.6 standard deviations
    assert len(set(fixed)) == len(fixed)  # no two alike: not drawn from a fixed seed
