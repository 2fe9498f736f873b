"""Dispatch of jobs to workers; the jobs of workers that are lost or stall are repeated by others."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from fedcmoo.engines.base import BlockSession
from fedcmoo.parameters import State
from fedcmoo.problem import Problem
from fedcmoo.sums import Sums
from fedcmoo.validation import at_least_one, positive
from fedcmoo.worker import AskClients, Job

log = logging.getLogger(__name__)

STARTING = 300.0
"""The minimum time in seconds for a worker to import torch and load the problem."""

W = TypeVar("W", bound=Hashable)


class WorkerError(ChildProcessError):
    """Workers could not be started, or were lost again and again."""


def check_workers(workers: int | None, deadline: float, retries: int) -> None:
    """Raise unless the settings of workers are valid."""
    at_least_one(workers=workers)
    positive(deadline=deadline)
    if retries < 0:
        raise ValueError(f"retries must not be negative, but got {retries}")


class WorkerSession(BlockSession, Generic[W]):
    """A session with workers and their jobs. A subclass implements the communication with workers.

    A job whose worker was lost is repeated by another worker: this costs time but changes no result, since clients are
    pure functions. If that happens too often, its clients have failed, and the run's rule for failures applies.

    Args:
        problem: the problem.
        count: the number of workers.
        deadline: seconds that a worker has for one client of a job (and for one batch of an evaluation). A worker that
            takes longer is replaced, like one that was lost.
        retries: how often the same job is repeated before it counts as a failure of its clients.
    """

    def __init__(self, problem: Problem, count: int, deadline: float, retries: int) -> None:
        super().__init__(problem)
        self.count, self._deadline, self._retries = count, deadline, retries
        self.workers: list[W] = []
        self._job_of: dict[W, int] = {}
        self._since: dict[W, float] = {}  # when each was sent a message that it has not answered yet
        self._bad_starts = 0

    @abstractmethod
    def start(self) -> W | None:
        """Start a worker, which reports when it is ready; None if there is not enough memory."""

    @abstractmethod
    def publish(self, state: State) -> None:
        """Publish the model to all workers, including those started later."""

    @abstractmethod
    def send(self, worker: W, job: Job) -> None:
        """Send a job to a worker; a dead worker is noticed later."""

    @abstractmethod
    def receive(self, timeout: float | None) -> Iterator[tuple[W, Sums | str | None]]:
        """Wait for reports from workers: None when they are ready, sums, or how they were lost ("" to ask `end`)."""

    @abstractmethod
    def end(self, worker: W) -> str:
        """End a worker, whatever it is doing; returns how it ended."""

    def run(self, jobs: Sequence[Job], state: State) -> Iterator[Sums]:
        self.start_missing()
        self.publish(state)
        work = _Work(jobs)
        try:
            for n in range(len(jobs)):
                self._assign(work)
                while n not in work.done:
                    self._collect(work)
                    self._assign(work)
                yield work.done.pop(n)
        finally:
            self.end_busy()

    def end_busy(self) -> None:
        """End the workers that have a job, since the run was interrupted."""
        for worker in list(self._job_of):
            self._forget(worker)
            self.end(worker)

    def start_missing(self) -> None:
        """Start workers up to the required number, or as many as memory allows."""
        while len(self.workers) < self.count and (worker := self.start()) is not None:
            self.workers.append(worker)
            self._since[worker] = time.monotonic()

    def _assign(self, work: _Work) -> None:
        """Give every free worker a job, if there is one for it."""
        for place, worker in enumerate(self.workers):
            if worker in self._since or not work.waiting:
                continue
            n = work.take(place, self.count)
            self._job_of[worker], self._since[worker] = n, time.monotonic()
            self.send(worker, work.jobs[n])

    def _collect(self, work: _Work) -> None:
        """Receive the workers' reports, and replace workers that are silent for too long."""
        until = {worker: since + self._seconds(worker, work) for worker, since in self._since.items()}
        timeout = max(0.0, min(until.values()) - time.monotonic()) if until else None
        for worker, outcome in self.receive(timeout):
            until.pop(worker, None)
            if isinstance(outcome, str):
                self._lost(worker, work, outcome)
                continue
            del self._since[worker]
            if outcome is None:
                self._bad_starts = 0
            else:
                work.done[self._job_of.pop(worker)] = outcome
        for worker in [worker for worker, when in until.items() if when <= time.monotonic()]:
            self._lost(worker, work, f"no reply within {self._seconds(worker, work):g} seconds", stalled=True)

    def _seconds(self, worker: W, work: _Work) -> float:
        """The time that a worker may take for its current task."""
        if worker not in self._job_of:
            return max(STARTING, self._deadline)
        job = work.jobs[self._job_of[worker]]
        return self._deadline * (len(job.clients) if isinstance(job, AskClients) else 1)

    def _forget(self, worker: W) -> int | None:
        self.workers.remove(worker)
        self._since.pop(worker, None)
        return self._job_of.pop(worker, None)

    def _lost(self, worker: W, work: _Work, why: str, stalled: bool = False) -> None:
        """Replace a worker; its job is repeated, or counts as a failure of its clients."""
        n = self._forget(worker)
        how = self.end(worker)
        why = why or how
        log.warning("a worker is replaced: %s", why)
        if n is None:
            self._bad_starts += 1
            if self._bad_starts > self._retries:
                raise WorkerError(f"{self._bad_starts} workers ended while they started ({why}); see what they printed")
            self.start_missing()
            return
        self.start_missing()
        work.losses[n] += 1
        if work.losses[n] <= self._retries:
            work.waiting.insert(0, n)
        else:
            work.done[n] = self._failed(work.jobs[n], work.losses[n], why, stalled)

    def _failed(self, job: Job, losses: int, why: str, stalled: bool) -> Sums:
        sums = Sums()
        clients = job.clients if isinstance(job, AskClients) else ()
        error = WorkerError(
            f"the worker of {f'clients {list(clients)}' if clients else 'an evaluation'} was lost {losses} times in a "
            f"row ({why}); fewer workers or a smaller batch_size need less memory, a longer deadline gives more time, "
            "and on_failure='skip' continues without such clients"
        )
        if not isinstance(job, AskClients):
            raise error
        for i in job.clients:
            job.request.on_failure.failed(sums.failures, i, error)
        sums.stalled = set(job.clients) if stalled else set()
        return sums


class _Work:
    """The state of one call of `run`: its jobs, those not started, those done, and lost workers by job."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.waiting = list(range(len(jobs)))
        self.done: dict[int, Sums] = {}
        self.losses: Counter[int] = Counter()

    def take(self, place: int, places: int) -> int:
        """The next job of the worker at a place: job n belongs to place n modulo the number of places, so that a block
        of clients finds the gradients of the round's earlier asks. An idle worker takes the last job of another."""
        n = next((n for n in self.waiting if n % places == place), self.waiting[-1])
        self.waiting.remove(n)
        return n
