"""The paper's claims as data, and the rule that decides whether our runs support them.

The claims are listed in `claims.toml`. Each is a number that should be positive (FedCMOO's accuracy minus FSMGDA's,
say); a target measures it once for every seed, and `judge` turns the measurements into a verdict.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from fedcmoo.report.table import CsvRow, Table
from fedcmoo.reproduce.paper import PROBLEMS

HOLDS, FAILS, OPEN, ABSENT = "holds", "does not hold", "not decided at this scale", "not measured"

OURS = "ours"
"""The `where` of claims that are not the paper's."""

RULE = (
    "A claim is a number that should be positive, measured once for every seed. Its standard error is the "
    "standard deviation over seeds (with one seed, the value known from other runs) divided by the square root of the "
    "number of seeds, but at least the claim's resolution: the standard error of a single measurement, for example "
    "due to the choice of test images. The claim holds if the mean is more than two standard errors above zero, "
    "does not hold if it is more than two below, and is not decided otherwise. Claims marked † are about the end of "
    "training: they are decided, in either direction, only by runs with the paper's settings and number of rounds, or "
    "with at least the number of rounds given after the †."
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper.

    Attributes:
        id: its name.
        target: which target measures it.
        text: what the paper says.
        where: where it says so.
        quantity: what is measured; positive if the claim is true.
        unit: of the quantity.
        resolution: one standard error of a single measurement, below which it cannot be told from zero.
        spread: the known spread over seeds, if any; used instead of the measured one if there is only one seed.
        paper: the quantity in the paper's own numbers, if it gives them.
        final: whether it is about the end of training.
        rounds: for a claim about the end of training, the number of rounds that suffices; None for the paper's.
        part: which part of the target it is about; None for all of them.
    """

    id: str
    target: str
    text: str
    where: str
    quantity: str
    unit: str
    resolution: float
    spread: float = 0.0
    paper: float | None = None
    final: bool = False
    rounds: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        if not self.resolution > 0:
            raise ValueError(f"the resolution of claim {self.id!r} must be positive, but got {self.resolution}")


@dataclass(frozen=True)
class Verdict:
    """A claim with its quantity for each seed, and the verdict: `HOLDS`, `FAILS`, `OPEN` or `ABSENT`."""

    claim: Claim
    values: Sequence[float]
    verdict: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Restore a verdict from its `dataclasses.asdict` JSON; the claim is the current one of `claims.toml`."""
        (claim,) = (claim for claim in all_claims() if claim.id == data["claim"]["id"])
        return cls(claim, data["values"], data["verdict"])


def judge(claim: Claim, values: Sequence[float], full: bool) -> Verdict:
    """Judge a claim by the `RULE`, given its quantity for each seed, and whether the runs have a sufficient scale.

    >>> claim = Claim(id="a", target="t", text="", where="", quantity="", unit="", resolution=0.5)
    >>> judge(claim, [2.0, 3.0], full=True).verdict, judge(claim, [0.9], full=True).verdict
    ('holds', 'not decided at this scale')
    """
    if not values:
        return Verdict(claim, [], ABSENT)
    if (claim.final and not full) or not all(math.isfinite(value) for value in values):
        return Verdict(claim, list(values), OPEN)
    mean, error = float(np.mean(values)), standard_error(claim, values)
    return Verdict(claim, list(values), HOLDS if mean > 2 * error else FAILS if mean < -2 * error else OPEN)


def standard_error(claim: Claim, values: Sequence[float]) -> float:
    """The standard error of the mean of the values, at least the resolution."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else claim.spread
    return max(spread / math.sqrt(len(values)), claim.resolution)


@cache
def all_claims() -> tuple[Claim, ...]:
    """The claims in `claims.toml`."""
    table = tomllib.loads((resources.files("fedcmoo.reproduce") / "claims.toml").read_text())
    return tuple(claim for entry in table["claim"] for claim in _claims(**entry))


def _claims(id: str, text: str, problems: Sequence[str] = (), **others: Any) -> Iterator[Claim]:
    """The claims of one entry of the file: one, or one for each of its problems, with that problem's values."""
    if not problems:
        yield Claim(id=id, text=text, **others)
    for part in problems:
        own: dict[str, Any] = {
            name: value.get(part) if isinstance(value, Mapping) else value for name, value in others.items()
        }
        yield Claim(id=f"{id}-{part}", text=text.format(problem=PROBLEMS[part]), part=part, **own)


def judge_target(
    target: str, measured: Mapping[str, Sequence[float]], suffices: Callable[[Claim], bool]
) -> list[Verdict]:
    """Verdicts on all claims of a target, including those that could not be measured.

    Args:
        target: its name.
        measured: the quantities by claim, one number for each seed.
        suffices: whether the runs have the scale that a claim about the end of training needs.
    """
    claims = [claim for claim in all_claims() if claim.target == target]
    unknown = set(measured) - {claim.id for claim in claims}
    if unknown:
        raise ValueError(f"claims.toml must have every claim that {target} measures, but lacks {sorted(unknown)}")
    found = [(claim, measured.get(claim.id, ())) for claim in claims]
    return [judge(claim, values, bool(values) and suffices(claim)) for claim, values in found]


def claims_table(verdicts: Sequence[Verdict]) -> Table:
    """All verdicts with the paper's number and ours: mean ± standard error."""
    rows: list[list[str]] = []
    records: list[CsvRow] = []
    for v in verdicts:
        c = v.claim
        digits = 1 if c.resolution >= 0.1 else 2 if c.resolution >= 0.01 else 3
        ours = "not measured"
        if v.values:
            error = standard_error(c, v.values)
            ours = f"{np.mean(v.values):.{digits}f} ± {error:.{digits}f} {c.unit}"
        paper = "" if c.paper is None else f"{c.paper:.{digits}f} {c.unit}"
        mark = f" †{c.rounds or ''}" if c.final else ""
        rows.append([c.text + mark, v.verdict, ours, paper, c.quantity, c.where])
        records.append(
            {
                "id": c.id,
                "verdict": v.verdict,
                "mean": float(np.mean(v.values)) if v.values else None,
                "spread": float(np.std(v.values, ddof=1)) if len(v.values) > 1 else None,
                "seeds": len(v.values),
                "resolution": c.resolution,
                "paper": c.paper,
                "unit": c.unit,
            }
        )
    header = ["the paper's claim", "verdict", "ours", "paper", "what is measured", "where"]
    return Table("claims", "The paper's claims", header, rows, records, RULE)
