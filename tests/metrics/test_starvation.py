"""Objectives that a rule starves: found in a history, and told when they happen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fedcmoo import FedAvg, FedCMOO, fit
from fedcmoo.experiments.mixed_digits import MixedDigits
from fedcmoo.history import Record
from fedcmoo.metrics import starved
from fedcmoo.weights import AtLeastEqual, FindWeights, Rule


def history(weights: Sequence[float], losses: Sequence[float], every: int = 5, gram: bool = True) -> list[Record]:
    """Rounds with these weights of objective "a", and evaluations with these losses of it."""
    records = []
    for n, w in enumerate(weights, start=1):
        scores = {"a": {"loss": losses[n // every - 1]}, "b": {"loss": 1.0}} if n % every == 0 else None
        G = [[1.0, 0.0], [0.0, 1.0]] if gram else None
        records.append(Record(n, [0], {"a": w, "b": 1 - w}, gram=G, test=scores))
    return records


@pytest.mark.parametrize("losses", [[2.0, 2.0, 2.0], [2.0, 2.1, 2.2], [2.0, 1.95, 1.91]])
def test_a_low_weight_and_a_loss_that_does_not_fall(losses: list[float]) -> None:
    assert starved(history([0.01] * 15, losses)) == ["a"]
    assert starved(history([0.5, *[0.01] * 15], losses, gram=False)) == ["a"]  # a rule for losses


@pytest.mark.parametrize(
    "records",
    [
        history([0.01] * 15, [2.0, 1.9, 1.8]),  # the loss falls
        history([0.3] * 15, [2.0, 2.0, 2.0]),  # the weight is no reason
        history([0.01] * 9 + [0.5] + [0.01] * 5, [2.0, 2.0, 2.0]),  # not for ten rounds
        history([0.01] * 10, [2.0, 2.0]),  # only five rounds from the first evaluation to the last one
        history([0.0] * 15, [2.0, 2.0, 2.0], gram=False),  # fixed weights, as in FedAvg
    ],
)
def test_no_false_alarm(records: list[Record]) -> None:
    assert starved(records) == []


def test_a_preference_is_no_starvation() -> None:
    """Weights that are low since a preference asks for a large loss."""
    records = history([0.01] * 15, [2.0, 2.0, 2.0])
    for record in records:
        record.notes["kl"] = 0.3
    assert starved(records) == []


def test_the_papers_rule_starves_an_objective_of_mixed_losses_and_the_default_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problem = MixedDigits().build(seed=0)

    def run(rule: Rule) -> list[str]:
        method = FedCMOO(weights=rule, client_lr=0.05, local_steps=2, batch_size=32)
        result = fit(problem, method, rounds=20, evaluate_every=5)
        assert ("Starved" in str(result)) == bool(result.starved)
        assert result.summary()["starved"] == result.starved
        return result.starved

    assert run(FindWeights()) == ["value"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "'value' is starved" in message
    assert "at-least-equal" in message
    caplog.clear()
    assert run(AtLeastEqual()) == []
    assert FedCMOO().weights == AtLeastEqual()
    assert not caplog.records


def test_training_one_objective_alone_is_no_starvation(caplog: pytest.LogCaptureFixture) -> None:
    method = FedAvg(weights=[1, 0, 0], client_lr=0.05, local_steps=1, batch_size=32)
    assert fit(MixedDigits().build(seed=0), method, rounds=15, evaluate_every=5).starved == []
    assert not caplog.records
