"""The history of a run, with the record of each round as one JSON line."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from dataclasses import asdict, dataclass, field
from inspect import formatannotation
from pathlib import Path
from typing import Any, Never, Self, get_args, get_origin, get_type_hints

from fedcmoo.client_scores import ClientScores, statistic
from fedcmoo.evaluation import Scores
from fedcmoo.files import DamagedError

MASKING = "masking"
"""The suffix, after the name of a phase, of the entries for its secure sums."""

EVALUATE = "evaluate"
"""The name of evaluations in `Record.seconds`."""


@dataclass
class Record:
    """The record of one round.

    Attributes:
        round: the number of the round, from 1.
        cohort: the clients of the round.
        weights: w by objective.
        gram: G [M, M], if the method estimated it.
        grad_norm_sq: w^T G w, the squared norm of the weighted gradient.
        up, down: bytes by phase, all clients together. The cost of secure sums beyond the codes of a phase has a
            separate entry, such as "train masking".
        seconds: by phase.
        failures: the reasons for failures, by client.
        undone: why the round's model was refused and the previous one kept; None if it was accepted.
        notes: further numbers: "stationarity" and "max_angle" if there is a Gram matrix, and the method's own.
        test, validation: losses and metrics by objective, in rounds with an evaluation.
        client_test: their distributions over clients, each evaluated on its own test data (see `client_scores`).
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
    undone: str | None = None
    notes: dict[str, float] = field(default_factory=dict)
    test: Scores | None = None
    validation: Scores | None = None
    client_test: ClientScores | None = None

    @property
    def scores(self) -> Scores | None:
        """The scores on test data, else on validation data, else the clients' means; None without an evaluation."""
        means = None if self.client_test is None else statistic(self.client_test, "mean")
        return self.test or self.validation or means

    def count(self, phase: str, up: int, down: int, seconds: float) -> None:
        """Add the bytes and seconds of an ask."""
        self.up[phase] = self.up.get(phase, 0) + up
        self.down[phase] = self.down.get(phase, 0) + down
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Read what `to_json` wrote; ValueError for anything else."""
        try:
            table = json.loads(line, parse_constant=_refuse)
            record = cls(**table)
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        for name, hint in get_type_hints(cls).items():
            if not _fits(getattr(record, name), hint):
                raise ValueError(f"{name!r} must be {formatannotation(hint)}, but is {str(getattr(record, name))[:80]}")
        return record

    def without_time(self) -> Record:
        """The record without its seconds: what equal seeds must reproduce exactly."""
        return Record(**{**self.__dict__, "seconds": {}})


def read_history(path: Path, rounds: int | None = None) -> list[Record]:
    """The records of a history file, rounds 1, 2, … in this order; a last line cut short by a crash is left out.

    Args:
        path: a `history.jsonl`; that of a published run is compressed, with ".gz" after its name.
        rounds: read only this many rounds; an error if there are fewer.
    """
    compressed = path.with_name(f"{path.name}.gz")
    text = path.read_bytes() if path.exists() else _decompress(compressed) if compressed.exists() else b""
    lines = text.split(b"\n")
    records = []
    for n, line in enumerate(lines[:-1][:rounds], start=1):  # the text after the last newline is incomplete
        try:
            record = Record.from_json(line)
        except ValueError as error:
            raise DamagedError(f"line {n} of {path} must be the record of a round, but is not: {error}") from None
        if record.round != n:
            raise DamagedError(
                f"line {n} of {path} must be the record of round {n}, but is that of round {record.round}"
            )
        records.append(record)
    if rounds is not None and len(records) < rounds:
        raise DamagedError(
            f"{path} must have {rounds} rounds, as the checkpoint beside it says, but has {len(records)}"
        )
    return records


def _decompress(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, OSError, zlib.error) as error:
        raise DamagedError(f"{path} must be a compressed history, but is not: {error}") from None


def _refuse(constant: str) -> Never:
    raise ValueError(f"numbers must be finite, but there is a {constant}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that was read from JSON matches a field's type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, args[1]) for v in value.values())
    if origin is list:
        return isinstance(value, list) and all(_fits(v, args[0]) for v in value)
    if args:  # a union
        return any(_fits(value, choice) for choice in args)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is hint
