"""Handling of Ctrl-C and SIGTERM during a run: each ends it with an exception, at a point where no work is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The default handlers; only these are replaced, since others were installed on purpose."""


class Interrupts:
    """Handlers of both signals during the `with` block; none outside the main thread.

    Ctrl-C raises KeyboardInterrupt, SIGTERM raises SystemExit. Inside `held` they wait until the end of the block, and
    after the first one all others wait until `saved`.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._hold = False
        self._waiting: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum, default in DEFAULTS.items():
                if signal.getsignal(signum) == default:
                    self._before[signum] = signal.signal(signum, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block that no signal interrupts; one that arrives meanwhile takes effect at its end."""
        before, self._hold = self._hold, True
        try:
            yield
        finally:
            self._hold = before
        if self._waiting is not None and not before:
            self._interrupt(self._waiting)

    def saved(self) -> None:
        """Mark finished work as saved: signals interrupt again from now on, and waiting signals are dropped."""
        self._hold, self._waiting = False, None

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._hold:
            self._waiting = number
        else:
            self._interrupt(number)

    def _interrupt(self, number: int) -> None:
        self._hold = True
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
