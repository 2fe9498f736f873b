"""Verdicts follow the stated rule, on numbers whose verdict is known."""

from __future__ import annotations

import math

import pytest

from fedcmoo.reproduce.claims import (
    ABSENT,
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Verdict,
    all_claims,
    claims_table,
    judge,
    judge_target,
    standard_error,
)
from fedcmoo.reproduce.command import suffices
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets import TARGETS


def claim(resolution: float = 0.3, spread: float = 0.9, final: bool = False) -> Claim:
    return Claim(
        id="c",
        target="t",
        text="A is above B",
        where="Table 1",
        quantity="A minus B",
        unit="points",
        resolution=resolution,
        spread=spread,
        paper=2.5,
        final=final,
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 3.2, 2.8], HOLDS),
        ([-3.0, -3.2, -2.8], FAILS),
        ([3.0, -3.0, 0.5], OPEN),  # the seeds disagree
        ([0.5, 0.5, 0.5], OPEN),  # they agree on what one measurement cannot tell from zero
        ([0.61, 0.61], HOLDS),
        ([1.81], HOLDS),  # one seed: the known spread
        ([1.79], OPEN),
        ([-1.81], FAILS),
        ([5.0, 0.1], OPEN),  # mean 2.55, standard error 2.45
        ([5.0, 2.0], HOLDS),  # mean 3.5, standard error 1.5
        ([], ABSENT),
        ([1.0, math.nan], OPEN),
    ],
)
def test_rule(values: list[float], expected: str) -> None:
    assert judge(claim(), values, full=True).verdict == expected


def test_a_claim_about_the_end_is_decided_only_at_full_scale() -> None:
    assert judge(claim(final=True), [-9.0], full=False).verdict == OPEN
    assert judge(claim(final=True), [-9.0], full=True).verdict == FAILS
    assert judge(claim(final=True), [9.0], full=False).verdict == OPEN
    assert judge(claim(final=True), [9.0], full=True).verdict == HOLDS
    assert judge(claim(), [-9.0], full=False).verdict == FAILS


def test_standard_error_is_that_of_the_mean_and_no_less_than_the_resolution() -> None:
    assert standard_error(claim(0.1), [1.0, 2.0, 3.0]) == pytest.approx(1 / math.sqrt(3))
    assert standard_error(claim(0.9), [1.0, 2.0, 3.0]) == 0.9
    assert standard_error(claim(0.2, spread=0.7), [1.0]) == 0.7
    assert standard_error(claim(0.2, spread=0.0), [1.0]) == 0.2


def test_claims_in_the_file_are_distinct_and_belong_to_targets() -> None:
    claims = all_claims()
    assert len({c.id for c in claims}) == len(claims) > 50
    assert {c.target for c in claims} == set(TARGETS)


def test_a_measurement_without_a_claim_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"must have every claim that rate measures, but lacks \['unheard-of'\]"):
        judge_target("rate", {"unheard-of": [1.0]}, lambda claim: True)


def test_what_was_not_measured_is_not_decided() -> None:
    for verdict in judge_target("rate", {}, lambda claim: True):
        assert (verdict.verdict, verdict.values) == (ABSENT, [])


def test_every_part_has_its_own_scale() -> None:
    measured = {f"mean-accuracy-{part}": [-9.0] for part in ("multimnist", "cifar10-mnist")}
    verdicts = judge_target("table1", measured, lambda claim: claim.part == "multimnist")
    found = {v.claim.id: v.verdict for v in verdicts if v.values}
    assert found == {"mean-accuracy-multimnist": FAILS, "mean-accuracy-cifar10-mnist": OPEN}


@pytest.mark.parametrize(
    ("study", "grows", "lead"),
    [
        (Study(full=True), True, True),
        (Study(full=True, rounds=300), True, False),
        (Study(full=True, rounds=299), False, False),
        (Study(rounds=500), False, False),  # fewer numbers of local steps
        (Study(full=True, sets={"problem": {"alpha": 1.0}}), False, False),
    ],
)
def test_trends_are_decided_by_300_rounds_and_leads_by_all(study: Study, grows: bool, lead: bool) -> None:
    drift, claims = TARGETS["drift"](), {c.id: c for c in all_claims()}
    found = [suffices(drift, study, claims[f"drift-{name}-multimnist"], drift.parts) for name in ("grows", "lead")]
    assert found == [grows, lead]


def test_a_claim_about_all_parts_needs_all_of_them_at_full_scale() -> None:
    radial, (claim,) = TARGETS["radial"](), [c for c in all_claims() if c.id == "radial-objectives"]
    assert suffices(radial, Study(full=True), claim, radial.parts)
    assert not suffices(radial, Study(full=True, rounds_of={"celeba5": 400}), claim, radial.parts)


def test_claims_are_made_for_each_problem() -> None:
    claims = {c.id: c for c in all_claims()}
    claim = claims["mean-accuracy-multimnist"]
    assert (claim.text, claim.paper, claim.part) == ("FedCMOO ends above FSMGDA on MultiMNIST", 3.25, "multimnist")
    assert (claims["speed-celeba5"].paper, claims["rate-slope"].paper) == (None, 0.0)


def test_resolution_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive, but got 0"):
        claim(resolution=0.0)


def test_table_has_both_numbers_and_the_rule() -> None:
    table = claims_table([judge(claim(), [3.0, 3.2], full=True), Verdict(claim(), [], OPEN)])
    assert list(table.rows[0][:4]) == ["A is above B", HOLDS, "3.1 ± 0.3 points", "2.5 points"]
    assert table.rows[1][2] == "not measured"
    assert "standard error" in table.note
    assert table.records[0]["mean"] == pytest.approx(3.1)
    assert table.records[0]["seeds"] == 2
