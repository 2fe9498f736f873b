"""Context notes for errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def during(what: str) -> Iterator[None]:
    """Add a note about the current activity to any error raised in the block; it is shown at the end of the traceback.

    >>> try:
    ...     with during("in phase 'train' of round 3 at client 5"):
    ...         raise ValueError("too wide")
    ... except ValueError as error:
    ...     print(error, error.__notes__)
    too wide ["in phase 'train' of round 3 at client 5"]
    """
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise
