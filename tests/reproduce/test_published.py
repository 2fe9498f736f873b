"""The results in docs/results: what they say is what their numbers give."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedcmoo.reproduce.claims import all_claims, judge
from fedcmoo.reproduce.outcome import Outcome
from fedcmoo.reproduce.summary import outcomes_in

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
OUTCOMES = {outcome.target: outcome for outcome in outcomes_in(RESULTS)}


@pytest.mark.parametrize("target", OUTCOMES)
def test_verdicts_follow_from_the_published_values(target: str) -> None:
    claims = {claim.id: claim for claim in all_claims()}
    outcome = OUTCOMES[target]
    for verdict in outcome.verdicts:
        claim = claims[verdict.claim.id]
        full = claim.part in outcome.full if claim.part else bool(outcome.full)
        if claim.rounds is not None and claim.part is not None:  # for which fewer rounds than the paper's suffice
            full = min(rounds_of(outcome, claim.part), default=0) >= claim.rounds
        assert judge(claim, verdict.values, full).verdict == verdict.verdict, claim.id


def rounds_of(outcome: Outcome, part: str) -> list[int]:
    """The rounds of the runs of a part, from their published configurations."""
    texts = [text for name, text in outcome.configurations.items() if name.startswith(f"{part}: ")]
    return [tomllib.loads(text)["rounds"] for text in texts]


def test_published_files_name_no_place_of_a_machine() -> None:
    for file in RESULTS.rglob("*"):
        if file.suffix in {".md", ".csv", ".json", ".svg", ".html"}:
            assert not re.search(r"(?<![\w.])/(home|tmp|root|Users|work)/", file.read_text()), file.name
