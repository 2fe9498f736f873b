"""What is known of each round, as one JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from fedcmoo.evaluation import Scores


@dataclass
class Record:
    """One round.

    Attributes:
        round: how many rounds are done after it, from 1.
        cohort: the clients of the round.
        weights: w by objective.
        gram: G [M, M], where the method estimated it.
        grad_norm_sq: w^T G w, the squared norm of the weighted gradient.
        up, down: bytes by phase, all clients together.
        seconds: by phase.
        failures: by client, what went wrong.
        notes: further numbers: "stationarity" and "max_angle" where there is a Gram matrix, and what the method adds.
        test, validation: losses and metrics by objective, in rounds with an evaluation.
    """

    round: int
    cohort: list[int]
    weights: dict[str, float]
    gram: list[list[float]] | None = None
    grad_norm_sq: float | None = None
    up: dict[str, int] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)
    test: Scores | None = None
    validation: Scores | None = None

    @property
    def scores(self) -> Scores | None:
        """On test data, or on validation data where there are no test data; None without an evaluation."""
        return self.test or self.validation

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields)

    def without_time(self) -> Record:
        """The record without its seconds: what equal seeds must reproduce exactly."""
        return Record(**{**self.__dict__, "seconds": {}})


def read_history(path: Path, rounds: int | None = None) -> list[Record]:
    """The records of a history file; a last line cut short by a crash is left out.

    Args:
        path: a `history.jsonl`.
        rounds: only the first so many; an error if there are fewer.
    """
    lines = path.read_text().split("\n") if path.exists() else []
    records = []
    for n, line in enumerate(lines[:-1][:rounds], start=1):  # what follows the last newline is incomplete
        try:
            records.append(Record.from_json(line))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {n} of {path} must be the record of a round, but is not: {error}") from None
    if rounds is not None and len(records) < rounds:
        raise ValueError(f"{path} must have {rounds} rounds, as the checkpoint beside it says, but has {len(records)}")
    return records
