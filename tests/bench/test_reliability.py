"""The short version of the campaign against the library: every promise holds, and a broken one would be counted."""

from __future__ import annotations

import pytest
import torch

from campaign import fuzz
from campaign.faults import FaultyRun, faulty_clients
from campaign.files import damaged_files, flipped_bits
from campaign.fuzz import fuzzed_messages
from campaign.kills import kills
from campaign.outcome import Outcome, markdown
from fedcmoo.messages import Message


def test_killed_runs_resume_bit_for_bit() -> None:
    outcome = kills(3, seed=1)
    assert outcome.passed, outcome
    assert outcome.tried == 3


def test_flipped_bits_are_noticed_and_damaged_files_refused() -> None:
    for outcome in (flipped_bits(40, resumes=1, seed=1), damaged_files(90, seed=1)):
        assert outcome.passed, outcome


def test_fuzzed_messages_are_refused_or_finite() -> None:
    outcome = fuzzed_messages(2_000, seed=1)
    assert outcome.passed, outcome
    assert min(outcome.counts["refused"], outcome.counts["accepted, finite"]) > 100


@pytest.mark.parametrize("engine", ["local", "nodes"])
def test_runs_with_faulty_clients_finish(engine: str) -> None:
    outcome = faulty_clients(engine, 12, seed=1)
    assert outcome.passed, outcome
    assert outcome.counts["failures"] > 0.3 * 12 * 10


@pytest.mark.deployment
def test_a_real_federation_with_faulty_clients_has_the_rounds_of_the_local_engine() -> None:
    pytest.importorskip("flwr")
    outcome = faulty_clients("flower", 2, seed=1)
    assert outcome.passed, outcome


def test_memory_that_grows_is_reported() -> None:
    assert FaultyRun(memory=[100] * 60 + [107] * 40).growth == pytest.approx(7)
    assert FaultyRun(memory=[50] * 10 + [100] * 90).growth == 0  # the first tenth is the start


def test_what_is_accepted_and_not_finite_would_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept_anything(sums: object, *rest: object) -> None:
        sums.totals["update"] = torch.tensor(float("nan"))  # type: ignore[attr-defined]

    monkeypatch.setattr(fuzz, "add_reply", accept_anything)
    monkeypatch.setattr(fuzz, "mutated", lambda data, other, chance: Message().encode())
    monkeypatch.setattr(fuzz, "rewritten", lambda data, chance: Message().encode())
    outcome = fuzzed_messages(5, seed=0)
    assert not outcome.passed
    assert "not finite" in outcome.broken[0]


def test_a_broken_promise_stands_in_the_table() -> None:
    table = markdown([Outcome("kills", 3, 2, {"kills": 4}, ["run 2 differs"])])
    assert "| kills | 3 | 2 | kills 4 |" in table
    assert "run 2 differs" in table
