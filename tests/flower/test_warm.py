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

from fedcmoo.engines.flower import warm

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


def test_it_is_faster_than_the_command(folder: Path) -> None:
    def seconds(command: str | Path) -> float:
        start = time.perf_counter()
        subprocess.run([command, "--help"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    own = Path(sys.executable).parent / "flwr-clientapp"
    if not own.exists():
        pytest.skip("Flower's commands are somewhere else")
    assert seconds(folder / "flwr-clientapp") < seconds(own)


def test_a_signal_to_the_group_of_the_stand_in_reaches_the_command(folder: Path) -> None:
    command = [str(folder / "flower-superexec"), "--insecure", "--runtime-api-address", "127.0.0.1:9"]
    process = subprocess.Popen(command, process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while len(group(process.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(group(process.pid)) == 2  # the stand-in and the fork
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    while group(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert group(process.pid) == []


def test_a_node_has_its_own(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert warm.run_node(["--version"]) == 0
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    assert "Flower version" in capfd.readouterr().out


def group(leader: int) -> list[int]:
    """The living processes of a group."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == leader and not state.startswith("Z")]
