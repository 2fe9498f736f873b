"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not path.is_relative_to(RESULTS)  # written by `fedcmoo reproduce`
}
FENCED = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(fedcmoo [^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language ("" for none), its text and the line that it starts in, counted from 0."""

    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    text = PAGES[page]
    for match in FENCED.finditer(text):
        yield Block(match[1], match[2], text[: match.start(2)].count("\n"))
