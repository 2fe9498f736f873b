"""The demo on this machine: equal to the local engine, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

pytestmark = pytest.mark.deployment
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def processes_of(folder: Path) -> list[int]:
    """All processes whose Flower home is in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            environment = (process / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        if f"FLWR_HOME={folder}".encode() in environment:
            found.append(int(process.name))
    return found


def start_demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fedcmoo", "flower", "demo", "--nodes", "2", *options],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@needs_proc
def test_the_demo_is_equal_to_the_local_engine_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with start_demo(tmp_path, "--rounds", "1") as demo:
        output, _ = demo.communicate(timeout=240)
    assert demo.returncode == 0
    assert "bit for bit" in " ".join(output.split())
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@needs_proc
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_end_every_process_of_the_demo(tmp_path: Path, signum: int) -> None:
    with start_demo(tmp_path) as demo:
        until = time.monotonic() + 120
        while len(processes_of(tmp_path)) < 3 and demo.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        assert len(processes_of(tmp_path)) >= 3  # some are up, others about to be
        demo.send_signal(signum)
        assert demo.wait(30) != 0
    until = time.monotonic() + 10 * (signum == signal.SIGKILL)  # then others must end them
    while processes_of(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == [] or signum == signal.SIGKILL
