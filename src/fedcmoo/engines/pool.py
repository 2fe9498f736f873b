"""Worker processes on one machine: one per core, each with its own model, with the data in shared memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from fedcmoo.contributions import Channels
from fedcmoo.engines.dispatch import WorkerError, WorkerSession, check_workers
from fedcmoo.engines.serialization import NOT_PICKLABLE, SharedMemory, SharedObject
from fedcmoo.engines.worker_handle import IDLE, WorkerHandle
from fedcmoo.engines.worker_process import Reply, RunSetup, state_in
from fedcmoo.parameters import Precision, State, check_precision
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from fedcmoo.validation import at_least_one
from fedcmoo.worker import Job

HOW_TO_SEND = (
    "define losses, metrics, model and data classes in an importable module, without lambdas, or use engine=Local()"
)


@dataclass(frozen=True)
class Pool:
    """Run clients in worker processes on this machine. Results do not depend on their number.

    Workers are kept after a run, for the next run in the same Python process.

    Workers receive the problem by pickle: losses and metrics must be functions or objects of an importable module, not
    lambdas. If some are defined in the main script, workers import that script, so the call to `fit` must be under
    `if __name__ == "__main__":`.

    Args:
        workers: the number of workers; by default one for each core that this process may use.
        threads: threads of torch's operators in each worker. With 1, the default, results are those of `Local()`.
        deadline: seconds that a worker has for each client of an ask; one that takes longer is replaced.
        retries: how often the clients of a worker that was lost (killed, out of memory, or beyond the deadline) are run
            again before they count as failed.
        precision: "bfloat16" for automatic mixed precision, if the processor supports it.
    """

    workers: int | None = None
    threads: int = 1
    deadline: float = 600.0
    retries: int = 2
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_workers(self.workers, self.deadline, self.retries)
        at_least_one(threads=self.threads)
        check_precision(self.precision, "cpu")

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> PoolSession:
        if os.name != "posix":
            raise WorkerError("a pool of workers needs Linux or macOS; use engine=Local() here")
        return PoolSession(problem, channels, seed, sizes, self)


class PoolSession(WorkerSession[WorkerHandle]):
    """The worker processes of one run."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes, settings: Pool) -> None:
        shared = share(problem, channels)
        published = SharedMemory(sizes.model_bytes)
        self._published = state_in(published.map(), sizes)
        self._memories: tuple[SharedMemory, ...] = (shared.memory, published)
        self._setup = RunSetup(
            shared.memory.size, shared.contents, _preparation(shared), seed, settings.threads, settings.precision
        )
        self._ready: set[WorkerHandle] = set()
        super().__init__(problem, settings.workers or usable_cores(), settings.deadline, settings.retries)
        try:
            self.start_missing()
        except BaseException:
            self.close()
            raise

    def start(self) -> WorkerHandle | None:
        try:
            worker = IDLE.take()
        except OSError:  # such as too little memory for another process
            if self.workers:
                return None
            raise
        with contextlib.suppress(OSError):  # the worker is dead, which `receive` will notice
            worker.send(self._setup)
            worker.send_memory(*self._memories)
        return worker

    def publish(self, state: State) -> None:
        for name in ("x", "buffers", "counters"):
            getattr(self._published, name).copy_(getattr(state, name))

    def send(self, worker: WorkerHandle, job: Job) -> None:
        with contextlib.suppress(OSError):
            worker.send(job)

    def receive(self, timeout: float | None) -> Iterator[tuple[WorkerHandle, Sums | str | None]]:
        readable = wait([worker.connection for worker in self.workers], timeout)
        for worker in [worker for worker in self.workers if worker.connection in readable]:
            try:
                reply = worker.receive()
            except (EOFError, OSError):
                yield worker, ""
                continue
            if reply is not None:
                yield worker, self._outcome(worker, reply)

    def end(self, worker: WorkerHandle) -> str:
        self._ready.discard(worker)
        return worker.end()

    def close(self) -> None:
        self.end_busy()
        for worker in self.workers:
            IDLE.put(worker)
        self.workers.clear()
        for memory in self._memories:
            memory.close()
        self._memories = ()
        super().close()

    def _outcome(self, worker: WorkerHandle, reply: Reply) -> Sums | str | None:
        if reply.out_of_memory:
            return "out of memory"
        if reply.error is not None and worker not in self._ready:
            raise WorkerError(
                f"a worker could not load the problem ({type(reply.error).__name__}: {reply.error}); {HOW_TO_SEND}"
            ) from reply.error
        if reply.error is not None:
            raise reply.error
        self._ready.add(worker)
        return reply.sums


def share(problem: Problem, channels: Channels) -> SharedObject:
    """Problem and channels, serialized for workers; an error with the reason if that is not possible."""
    try:
        return SharedObject((problem, dict(channels)))
    except NOT_PICKLABLE as error:
        raise WorkerError(f"the problem cannot be sent to workers ({error}); {HOW_TO_SEND}") from error


def _preparation(shared: SharedObject) -> dict[str, Any]:
    """The data that set up a worker like this process; the main script is imported only if the problem needs it."""
    if shared.needs_main and not hasattr(sys.modules["__main__"], "__file__"):
        raise WorkerError(f"workers cannot import what an interactive session defines; {HOW_TO_SEND}")
    main = ("init_main_from_name", "init_main_from_path") if shared.needs_main else ()
    data = spawn.get_preparation_data("worker")
    return {name: data[name] for name in ("sys_path", "sys_argv", "dir", *main) if name in data}


def usable_cores() -> int:
    """The number of cores that this process may use, given its affinity and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
