"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcmoo import result
from fedcmoo.report.chart import Chart
from fedcmoo.report.static import draw


def pytest_configure() -> None:
    """A shell that starts the tests in the background has them ignore Ctrl-C, also in the processes they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def no_curves() -> Iterator[None]:
    """Runs of this process leave out curves.png, which takes longer to draw than most tests train."""

    def other_figures(chart: Chart, path: str | Path | None = None, axis: str | None = None) -> object:
        return None if path is not None and Path(path).name == "curves.png" else draw(chart, path, axis)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result, "draw", other_figures)
        yield


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this test draw their curves."""
    monkeypatch.setattr(result, "draw", draw)
