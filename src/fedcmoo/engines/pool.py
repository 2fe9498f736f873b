"""Worker processes on one machine: one per core, each with one model, all with the same data in shared memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, get_args

from fedcmoo.contributions import Channels
from fedcmoo.engines.base import BlockSession
from fedcmoo.engines.serialization import NOT_PICKLABLE, SharedMemory, SharedObject
from fedcmoo.engines.worker_handle import IDLE, WorkerHandle
from fedcmoo.engines.worker_process import RunSetup, state_in
from fedcmoo.parameters import Precision, State, check_precision
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes, Sums
from fedcmoo.worker import AskClients, Job

OnFailure = Literal["retry", "skip"]

HOW_TO_SEND = (
    "define losses, metrics, model and data classes in an importable module, without lambdas, or use engine=Local()"
)


class WorkerError(ChildProcessError):
    """Workers could not be started, or were lost again and again."""


@dataclass(frozen=True)
class Pool:
    """Worker processes on this machine. Results do not depend on their number.

    Workers are kept when a run ends, for the next run of the same Python process.

    Workers receive the problem by pickle: losses and metrics must be functions or objects of an importable module, not
    lambdas. If some are defined in the main script, workers import that script, so the call to `fit` must be under
    `if __name__ == "__main__":`.

    Args:
        workers: how many; by default one for each core that this process may use.
        threads: of torch's operators in each worker. With one, the default, results are those of `Local()`.
        on_failure: what to do when a worker is lost (killed, or out of memory): "retry" runs its clients again in
            another worker, "skip" continues the round without them.
        retries: how often the same clients are run again before it is an error.
        precision: "bfloat16" for automatic mixed precision, where the processor has it.
    """

    workers: int | None = None
    threads: int = 1
    on_failure: OnFailure = "retry"
    retries: int = 2
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, but got {self.workers}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, but got {self.threads}")
        if self.on_failure not in get_args(OnFailure):
            raise ValueError(f"on_failure must be 'retry' or 'skip', but got {self.on_failure!r}")
        if self.retries < 0:
            raise ValueError(f"retries must not be negative, but got {self.retries}")
        check_precision(self.precision, "cpu")

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> PoolSession:
        if os.name != "posix":
            raise WorkerError("a pool of workers needs Linux or macOS; use engine=Local() here")
        return PoolSession(problem, channels, seed, sizes, self)


class PoolSession(BlockSession):
    """The workers of one run, and the job of each."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes, settings: Pool) -> None:
        self._settings = settings
        self._count = settings.workers or usable_cores()
        shared = share(problem, channels)
        published = SharedMemory(sizes.model_bytes)
        self._published = state_in(published.map(), sizes)
        self._memories: tuple[SharedMemory, ...] = (shared.memory, published)
        self._setup = RunSetup(
            shared.memory.size, shared.contents, _preparation(shared), seed, settings.threads, settings.precision
        )
        self._workers: list[WorkerHandle] = []
        self._ready: set[WorkerHandle] = set()
        self._job_of: dict[WorkerHandle, int] = {}
        self._bad_starts = 0
        self._start_workers()
        super().__init__(problem)

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.pid for worker in self._workers]

    def run(self, jobs: Sequence[Job], state: State) -> Iterator[Sums]:
        self._start_workers()
        for name in ("x", "buffers", "counters"):
            getattr(self._published, name).copy_(getattr(state, name))
        work = _Work(jobs)
        try:
            for n in range(len(jobs)):
                self._assign(work)
                while n not in work.done:
                    readable = wait([worker.connection for worker in self._workers])
                    for worker in [worker for worker in self._workers if worker.connection in readable]:
                        self._receive(worker, work)
                    self._assign(work)
                yield work.done.pop(n)
        finally:
            for worker in list(self._job_of):  # the run was interrupted
                self._stop(worker)

    def close(self) -> None:
        for worker in list(self._workers):
            if worker in self._job_of:
                self._stop(worker)
            else:
                self._workers.remove(worker)
                IDLE.put(worker)
        for memory in self._memories:
            memory.close()
        self._memories = ()
        super().close()

    def _start_workers(self) -> None:
        """Start workers until there are as many as there should be, or as memory allows."""
        while len(self._workers) < self._count:
            try:
                worker = IDLE.take()
            except OSError:  # no memory for another process, say
                if self._workers:
                    return
                raise
            self._workers.append(worker)
            with contextlib.suppress(OSError):  # of a dead worker, which `_receive` will notice
                worker.send(self._setup)
                worker.send_memory(*self._memories)

    def _stop(self, worker: WorkerHandle) -> str:
        self._workers.remove(worker)
        self._ready.discard(worker)
        self._job_of.pop(worker, None)
        return worker.end()

    def _assign(self, work: _Work) -> None:
        """Give every free worker a job, if there is one for it."""
        for place, worker in enumerate(self._workers):
            if worker not in self._ready or worker in self._job_of or not work.waiting:
                continue
            n = work.take(place, self._count)
            self._job_of[worker] = n
            with contextlib.suppress(OSError):
                worker.send(work.jobs[n])

    def _receive(self, worker: WorkerHandle, work: _Work) -> None:
        try:
            reply = worker.receive()
        except (EOFError, OSError):
            self._lost(worker, work)
            return
        if reply is None:
            return
        if reply.out_of_memory:
            self._lost(worker, work, "out of memory")
        elif worker not in self._ready:
            if reply.error is not None:
                raise WorkerError(
                    f"a worker could not load the problem ({type(reply.error).__name__}: {reply.error}); {HOW_TO_SEND}"
                ) from reply.error
            self._ready.add(worker)
            self._bad_starts = 0
        else:
            n = self._job_of.pop(worker)
            if reply.sums is None:
                assert reply.error is not None
                raise reply.error
            work.done[n] = reply.sums

    def _lost(self, worker: WorkerHandle, work: _Work, why: str | None = None) -> None:
        """Replace a worker; its job is done again, or done without, or one loss too many."""
        n, was_ready = self._job_of.get(worker), worker in self._ready
        how = self._stop(worker)
        how = why or how
        self._bad_starts += not was_ready
        if self._bad_starts > self._settings.retries:
            raise WorkerError(f"{self._bad_starts} workers ended while they started ({how}); see what they printed")
        if n is not None:
            self._lost_job(n, work, how)
        self._start_workers()

    def _lost_job(self, n: int, work: _Work, how: str) -> None:
        job = work.jobs[n]
        work.losses[n] += 1
        if self._settings.on_failure == "skip" and isinstance(job, AskClients):
            work.done[n] = Sums()
            work.done[n].failures = dict.fromkeys(job.clients, f"lost its worker ({how})")
        elif work.losses[n] <= self._settings.retries:
            work.waiting.insert(0, n)
        else:
            what = f"of clients {list(job.clients)}" if isinstance(job, AskClients) else "of an evaluation"
            raise WorkerError(
                f"the worker {what} was lost {work.losses[n]} times in a row ({how}); fewer workers or a smaller "
                "batch_size need less memory, and on_failure='skip' goes on without such clients"
            )


class _Work:
    """One call of `run`: its jobs, those that nobody has begun, those that are done, and lost workers by job."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.waiting = list(range(len(jobs)))
        self.done: dict[int, Sums] = {}
        self.losses: Counter[int] = Counter()

    def take(self, place: int, places: int) -> int:
        """The next job of the worker at a place: job n belongs to place n modulo the number of places, so that a block
        of clients finds the gradients of the round's earlier asks. A worker without jobs takes the last of another."""
        n = next((n for n in self.waiting if n % places == place), self.waiting[-1])
        self.waiting.remove(n)
        return n


def share(problem: Problem, channels: Channels) -> SharedObject:
    """Problem and channels for workers, or an error that says what prevents it."""
    try:
        return SharedObject((problem, dict(channels)))
    except NOT_PICKLABLE as error:
        raise WorkerError(f"the problem cannot be sent to workers ({error}); {HOW_TO_SEND}") from error


def _preparation(shared: SharedObject) -> dict[str, Any]:
    """How a worker becomes like this process; the main script is imported only if the problem needs it."""
    if shared.needs_main and not hasattr(sys.modules["__main__"], "__file__"):
        raise WorkerError(f"workers cannot import what an interactive session defines; {HOW_TO_SEND}")
    main = ("init_main_from_name", "init_main_from_path") if shared.needs_main else ()
    data = spawn.get_preparation_data("worker")
    return {name: data[name] for name in ("sys_path", "sys_argv", "dir", *main) if name in data}


def usable_cores() -> int:
    """The cores that this process may use, by its affinity and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
