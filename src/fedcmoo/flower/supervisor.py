"""A supervisor process, which outlives its parent just long enough to end the processes that the parent left running.

It runs only this file, with only the standard library.
"""

import contextlib
import os
import signal
import subprocess
import sys


class Supervisor:
    """Kills process groups as soon as this process is gone, however it ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-IS", __file__], stdin=subprocess.PIPE, process_group=0, bufsize=0
        )

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Supervise the group that a process leads."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process.pid}\n".encode())

    def close(self) -> None:
        """End the supervisor, once no process is left to end."""
        self._process.kill()
        self._process.communicate()


def kill_at_end_of_input() -> None:
    """Read the ids of process groups until the pipe has no more writers; then kill them."""
    for line in sys.stdin.readlines():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(line), signal.SIGKILL)


if __name__ == "__main__":
    kill_at_end_of_input()
