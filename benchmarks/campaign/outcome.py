"""What one part of the campaign counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """The counts of one part.

    Attributes:
        part: its name.
        tried: how many attempts there were.
        held: in how many of them the promise held.
        counts: further numbers, by name.
        broken: what happened where it did not hold; the first few.
    """

    part: str
    tried: int
    held: int
    counts: Mapping[str, float] = field(default_factory=dict)
    broken: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Whether the promise always held."""
        return 0 < self.tried == self.held


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = ["| part | tried | held | |", "|---|---|---|---|"]
    for outcome in outcomes:
        counts = "; ".join(f"{name} {value:,.6g}" for name, value in outcome.counts.items())
        lines.append(f"| {outcome.part} | {outcome.tried:,} | {outcome.held:,} | {counts} |")
        lines += [f"| | | broken | {text} |" for text in outcome.broken]
    return "\n".join(lines)
