"""The server's handle on a worker process.

Workers are new interpreters connected by a socket pair, in a separate process group: only the server handles Ctrl-C,
and when the server closes its end or dies, they exit at once.
"""

import atexit
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from fedcmoo.engines import serialization
from fedcmoo.engines.serialization import SharedMemory
from fedcmoo.engines.worker_process import Reply, RunSetup
from fedcmoo.worker import Job

IN_WORKER = "FEDCMOO_WORKER"
"""The environment variable by which a process knows that it is a worker."""

STUCK = 60
"""Seconds after which a worker that stalls in the middle of a message counts as dead."""

WORKER_ENVIRONMENT = {
    IN_WORKER: "1",
    # For libraries that read these when they are loaded; torch's number of threads is part of the setup.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}


class WorkerHandle:
    """A worker process, which takes some seconds to start."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._started = time.time()
        ours, theirs = socket.socketpair()
        end = theirs.fileno()
        code = f"import sys; sys.path[:] = {sys.path!r}; from fedcmoo.engines.worker_process import serve; serve({end})"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **WORKER_ENVIRONMENT},
                pass_fds=[end],
                process_group=0,
            )
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", STUCK, 0))
        self._socket = ours
        self.connection = Connection(os.dup(ours.fileno()))
        self._unanswered = 0
        self._stale = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_reusable(self) -> bool:
        """Whether it runs, was started by this very process (not by the parent of a fork), and has current code."""
        return self._owner == os.getpid() and self._process.poll() is None and _newest_source() < self._started

    def send(self, message: RunSetup | Job) -> None:
        """Send a setup or a job, which the worker will answer. OSError if the worker is dead."""
        self._unanswered += 1
        serialization.send(self.connection, message)

    def release(self) -> None:
        """End the run at the worker. Outstanding replies are ignored."""
        self._stale = self._unanswered
        serialization.send(self.connection, None)

    def send_memory(self, *memories: SharedMemory) -> None:
        """Send the file descriptors of the memory that belongs to a setup."""
        socket.send_fds(self._socket, [b"."], [memory.fd for memory in memories])

    def receive(self) -> Reply | None:
        """Receive the next reply; None for a reply from an earlier run. EOFError or OSError if the worker is dead."""
        reply: Reply = serialization.receive(self.connection)
        self._unanswered -= 1
        if self._stale > 0:
            self._stale -= 1
            return None
        return reply

    def end(self) -> str:
        """End it, whatever it is doing; returns how it ended."""
        self.connection.close()
        self._socket.close()
        if self._owner != os.getpid():
            return "belongs to another process"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        self._process.kill()
        return how_ended(self._process.wait())


def how_ended(exit_code: int) -> str:
    """How a process ended, for error messages.

    >>> how_ended(-9), how_ended(3)
    ('killed by signal 9', 'exit code 3')
    """
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


class _Idle:
    """Idle workers between two runs: starting one takes seconds, so the next run of this process reuses them."""

    def __init__(self) -> None:
        self._workers: list[WorkerHandle] = []
        atexit.register(self.end)

    def take(self) -> WorkerHandle:
        """An idle worker, or a new one."""
        while self._workers:
            worker = self._workers.pop(0)  # the newest may still be starting
            if worker.is_reusable:
                return worker
            worker.end()
        return WorkerHandle()

    def put(self, worker: WorkerHandle) -> None:
        """Keep a worker for the next run."""
        try:
            worker.release()
        except OSError:
            worker.end()
        else:
            self._workers.append(worker)

    def end(self) -> None:
        """End all idle workers."""
        while self._workers:
            self._workers.pop().end()


IDLE = _Idle()


def _newest_source() -> float:
    """The latest modification time of the modules that this process has loaded; older workers may have other code."""
    newest = 0.0
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            with contextlib.suppress(OSError):  # in an archive, or gone
                newest = max(newest, os.stat(file).st_mtime)
    return newest
