"""What Ray opens and leaves behind on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

from fedcmoo.engines.ray import _session_folder

RUN = """
import os, sys
from fedcmoo.engines.ray import Ray, connect
from tests.engines.test_ray_safety import descendants, listening

connect(Ray(workers=1))
import ray

@ray.remote
def double(x):
    return 2 * x

assert ray.get(double.remote(21)) == 42
print("folder", ray._private.worker._global_node.get_session_dir_path())
for address in listening(descendants(os.getpid())):
    print("listens", address)
"""

KILLED = """
import os, signal
from fedcmoo.engines.ray import _session_folder

print(_session_folder(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks for sockets in /proc")


def descendants(root: int) -> set[int]:
    """A process and all that come from it."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, more = set[int](), {root}
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in found} - found
    return found


def listening(processes: set[int]) -> list[str]:
    """The addresses (hexadecimal, as the kernel writes them) on which some processes listen."""
    inodes = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]


@needs_proc
def test_ray_listens_on_loopback_alone_and_leaves_no_session() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    addresses = [value for name, value in lines if name == "listens"]
    (folder,) = [Path(value) for name, value in lines if name == "folder"]
    assert len(addresses) >= 3
    assert set(addresses) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert not folder.exists()
    assert not folder.parent.exists()


def test_the_session_of_a_killed_process_goes_with_the_next_one() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    session = Path(killed.stdout.strip())
    os.utime(session, (0, 0))
    mine = Path(_session_folder())
    assert not session.exists()
    os.utime(mine, (0, 0))
    another = Path(_session_folder())
    assert mine.exists()  # since this process is alive
    shutil.rmtree(mine)
    shutil.rmtree(another)
