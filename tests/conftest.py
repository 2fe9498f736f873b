"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that starts the tests in the background has them ignore Ctrl-C, also in the processes they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
