"""Detect objectives that a weighting rule leaves untrained."""

from __future__ import annotations

from collections.abc import Sequence

from fedcmoo.history import Record

LOW_WEIGHT = 0.02
ROUNDS = 10
STANDS_STILL = 0.05

NON_UNIFORMITY = "kl"
"""The note of rounds whose weights steer the losses towards a preference."""

REMEDY = (
    "Unless it has converged, use weights=AtLeastEqual() (--weights at-least-equal), which gives every objective at "
    "least the weight of FedAvg, or bring the losses to comparable scales."
)


def starved(history: Sequence[Record]) -> list[str]:
    """The objectives that a weighting rule starves, given the records of all rounds.

    An objective is starved if its weight is below `LOW_WEIGHT` in all rounds between two evaluations at least `ROUNDS`
    apart, and its loss falls by less than the share `STANDS_STILL` between them. Only weights found by a rule are
    checked. Fixed ones, as in FedAvg, and those that follow a preference are the user's choice.
    """
    found_by_rule = any(record.gram or record.weights != history[0].weights for record in history)
    if not found_by_rule or any(NON_UNIFORMITY in record.notes for record in history):
        return []
    found: dict[str, None] = {}
    evaluated = [(record.round, record.scores) for record in history if record.scores]
    for last, after in evaluated:
        first, before = next((pair for pair in reversed(evaluated) if pair[0] <= last - ROUNDS), (0, {}))
        for name in before:
            low = all(record.weights[name] < LOW_WEIGHT for record in history[first:last])
            if low and after[name]["loss"] > (1 - STANDS_STILL) * before[name]["loss"]:
                found[name] = None
    return list(found)
