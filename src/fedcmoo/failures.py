"""Rules for clients that fail: the same for all engines, applied where replies are added up."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from fedcmoo.validation import at_least_one

LONGEST = 300
"""The maximum length of a failure's reason, in characters."""

SHOWN = 3
"""The maximum number of failures listed in an error message; further ones are counted."""


class ClientFailedError(RuntimeError):
    """A client on another machine failed, and the run does not continue without it."""


class TooFewRepliesError(ConnectionError):
    """Fewer clients than the run's minimum replied."""


class DivergedError(RuntimeError):
    """A loss or gradient was NaN or infinite: the run ends, the last good checkpoint stays."""


class FailureRule(ABC):
    """A rule for failures: clients that raised an error, sent a reply that was refused, or did not reply in time."""

    min_replies: int
    """How many clients must reply to an ask; with fewer, the round is undone."""
    pause: int
    """For how many rounds a client that did not reply in time is not asked again."""

    @abstractmethod
    def failed(self, failures: dict[int, str], i: int, error: Exception) -> None:
        """Record in `failures` why client i has no reply, or raise the error."""

    @contextmanager
    def of_client(self, failures: dict[int, str], i: int) -> Iterator[None]:
        """Context for the work of client i alone: an exception is a failure of this client."""
        try:
            yield
        except Exception as error:
            self.failed(failures, i, error)

    def check(self, replies: int, asked: int, failures: Mapping[int, str]) -> None:
        """Raise `TooFewRepliesError` unless enough of the clients that were asked have replied."""
        needed = max(1, min(self.min_replies, asked))
        if replies < needed:
            raise TooFewRepliesError(f"at least {needed} clients must reply, but {replies} did: {summary(failures)}")


@dataclass(frozen=True)
class Stop(FailureRule):
    """End the run at the first failure, with the client's error; finished rounds are saved.

    The default for clients in this process and on this machine, where an error is usually a mistake in the code.
    """

    min_replies = 1
    pause = 0

    def failed(self, failures: dict[int, str], i: int, error: Exception) -> None:
        raise ClientFailedError(f"client {i}: {bounded(str(error))}") if isinstance(error, ClientFailedError) else error


@dataclass(frozen=True)
class Skip(FailureRule):
    """Continue the round without the clients that fail, and record them in the history with the reason.

    Args:
        min_replies: how many clients must reply to an ask. With fewer the round is undone, and after several such
            rounds in a row the run ends (see `Acceptance`).
        pause: for how many rounds a client that did not reply in time is not asked again, so that a stalled node does
            not delay every round.

    >>> failures = {}
    >>> Skip().failed(failures, 3, ValueError("no such sample:\\n17"))
    >>> failures
    {3: 'ValueError: no such sample: 17'}
    """

    min_replies: int = 1
    pause: int = 5

    def __post_init__(self) -> None:
        at_least_one(min_replies=self.min_replies)
        if not (isinstance(self.pause, int) and self.pause >= 0):
            raise ValueError(f"pause must be a whole number that is not negative, but got {self.pause}")

    def failed(self, failures: dict[int, str], i: int, error: Exception) -> None:
        text = str(error)
        failures[i] = bounded(text if isinstance(error, ClientFailedError) else f"{type(error).__name__}: {text}")


FAILURE_RULES: dict[str, type[FailureRule]] = {"stop": Stop, "skip": Skip}


def bounded(text: str) -> str:
    """An external text as one short line without control characters, for histories, logs and terminals.

    >>> bounded("first\\x1b[31m\\nsecond")
    'first[31m second'
    """
    start = " ".join(text[: 4 * LONGEST].split())
    line = "".join(character for character in start if character.isprintable())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def summary(failures: Mapping[int, str]) -> str:
    """A text with the first failures and the number of further ones."""
    first = "; ".join(f"client {i}: {why}" for i, why in islice(failures.items(), SHOWN))
    more = len(failures) - SHOWN
    return f"{first or 'no client was asked'}{f'; and {more} more' if more > 0 else ''}"


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
