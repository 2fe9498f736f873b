"""The server's end of a worker process.

Workers are fresh interpreters on the other end of a socket pair, in a process group of their own: Ctrl-C is the
server's alone to handle, and when the server closes its end, or dies in whatever way, they end at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from fedcmoo.engines import wire
from fedcmoo.engines.serve import Contract, Reply
from fedcmoo.engines.wire import SharedMemory
from fedcmoo.worker import Job

IN_WORKER = "FEDCMOO_WORKER"
"""Set in the environment of workers."""

WORKER_ENVIRONMENT = {
    IN_WORKER: "1",
    # For libraries that read them once, when they are loaded; torch's own number is set by the contract.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}


class WorkerProcess:
    """A worker, started at once; it takes some seconds until it answers."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._started = time.time()
        ours, theirs = socket.socketpair()
        end = theirs.fileno()
        code = f"import sys; sys.path[:] = {sys.path!r}; from fedcmoo.engines.serve import serve; serve({end})"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **WORKER_ENVIRONMENT},
                pass_fds=[end],
                process_group=0,
            )
        self._socket = ours
        self.connection = Connection(os.dup(ours.fileno()))
        self._unanswered = 0
        self._stale = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_as_new(self) -> bool:
        """Whether it runs, is this process's own (a fork of the server has no workers), and has no outdated code."""
        return self._owner == os.getpid() and self._process.poll() is None and _newest_source() < self._started

    def send(self, message: Contract | Job) -> None:
        """A contract or a job, to which there will be a reply. OSError if the worker is dead."""
        self._unanswered += 1
        wire.send(self.connection, message)

    def release(self) -> None:
        """End the contract. What the worker may still answer is of no interest to the next one."""
        self._stale = self._unanswered
        wire.send(self.connection, None)

    def send_memory(self, *memories: SharedMemory) -> None:
        """The memory that the contract just sent speaks of."""
        socket.send_fds(self._socket, [b"."], [memory.fd for memory in memories])

    def receive(self) -> Reply | None:
        """The next reply; None for one that nobody waits for any more. EOFError or OSError if the worker is dead."""
        reply: Reply = wire.receive(self.connection)
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
        code = self._process.wait()
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class _Idle:
    """Workers between two runs: starting one takes seconds, so the next run of this process takes them over."""

    def __init__(self) -> None:
        self._workers: list[WorkerProcess] = []
        atexit.register(self.end)

    def take(self) -> WorkerProcess:
        """A waiting worker, or a new one."""
        while self._workers:
            worker = self._workers.pop(0)  # the newest may still be starting
            if worker.is_as_new:
                return worker
            worker.end()
        return WorkerProcess()

    def put(self, worker: WorkerProcess) -> None:
        """Let a worker wait that has nothing to do, or is just starting."""
        try:
            worker.release()
        except OSError:
            worker.end()
        else:
            self._workers.append(worker)

    def end(self) -> None:
        """End all waiting workers."""
        while self._workers:
            self._workers.pop().end()


IDLE = _Idle()


def _newest_source() -> float:
    """When a module that this process has loaded was last changed on disk: workers that have it from before have
    something else."""
    newest = 0.0
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            with contextlib.suppress(OSError):  # in an archive, or gone
                newest = max(newest, os.stat(file).st_mtime)
    return newest
