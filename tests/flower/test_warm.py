"""Commands that fork from a warm process behave as Flower's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedcmoo.flower import warm

pytestmark = pytest.mark.deployment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Stand-ins for all commands, and the process behind them."""
    folder = tmp_path_factory.mktemp("warm")
    process = subprocess.Popen([sys.executable, "-m", warm.__name__, str(folder)])
    try:
        until = time.monotonic() + 60
        while not (folder / warm.ALL[-1]).exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield folder
    finally:
        process.kill()
        process.wait()


def test_output_and_exit_codes_are_those_of_the_command(folder: Path) -> None:
    good = subprocess.run([folder / "flwr-clientapp", "--help"], capture_output=True, text=True, check=False)
    assert good.returncode == 0
    assert "Run a Flower ClientApp" in good.stdout
    bad = subprocess.run([folder / "flower-superlink", "--port", "x"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "--port" in bad.stderr


def test_a_signal_to_the_group_of_the_stand_in_reaches_the_command(folder: Path) -> None:
    command = [str(folder / "flower-superexec"), "--insecure", "--runtime-api-address", "127.0.0.1:9"]
    process = subprocess.Popen(command, process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while len(group(process.pid)) < 2 and time.monotonic() < until:  # the stand-in and the fork
            time.sleep(0.05)
        assert len(group(process.pid)) >= 2
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    while group(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert group(process.pid) == []


def test_a_node_has_its_own(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", os.defpath)  # Flower's commands are found beside this Python all the same
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert warm.run_node(["--version"]) == 0
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    assert "Flower version" in capfd.readouterr().out


def test_a_node_without_flower_says_where_it_looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(FileNotFoundError, match=r"flower-supernode must be beside .*python or in PATH, but is not"):
        warm.run_node(["--version"])


def group(leader: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        if int(its_group) == leader and state != "Z":
            found.append(int(file.parent.name))
    return found
