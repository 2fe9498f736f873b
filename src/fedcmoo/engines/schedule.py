"""Which job a free worker does next: expensive ones first, and a client's next phase where its last one was.

The order never changes a result, only how long it takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fedcmoo.worker import AskClients, Job


@dataclass
class _Seen:
    """What a round's earlier phases left of a client: where its gradients are kept, and what they cost."""

    worker: Hashable
    seconds: float = 0.0


class Times:
    """What jobs cost, learned from those that are done."""

    def __init__(self) -> None:
        self._of_client: dict[tuple[str, int], float] = {}
        self._of_phase: dict[str, tuple[float, int]] = {}
        self._round = -1
        self._seen: dict[int, _Seen] = {}

    def note(self, job: Job, worker: Hashable, seconds: float) -> None:
        """A worker did a job in some seconds."""
        if not isinstance(job, AskClients):
            return
        if job.round != self._round:
            self._round, self._seen = job.round, {}
        total, count = self._of_phase.get(job.phase, (0.0, 0))
        self._of_phase[job.phase] = total + seconds, count + len(job.clients)
        for i in job.clients:
            each = seconds / len(job.clients)
            self._of_client[job.phase, i] = each
            before = self._seen.get(i, _Seen(worker)).seconds
            self._seen[i] = _Seen(worker, before + each)

    def expected(self, job: Job) -> float:
        """The seconds a job will take: as the last time for each client, or as for the average client."""
        if not isinstance(job, AskClients):
            return 1.0
        total, count = self._of_phase.get(job.phase, (1.0, 1))
        return sum(self._of_client.get((job.phase, i), total / count) for i in job.clients)

    def home(self, job: Job) -> Hashable:
        """The worker that keeps the gradients of the job's first client; None if nobody does."""
        seen = self._first_seen(job)
        return None if seen is None else seen.worker

    def lost(self, job: Job) -> float:
        """The seconds it may cost to do the job elsewhere than at home."""
        seen = self._first_seen(job)
        return 0.0 if seen is None or not isinstance(job, AskClients) else seen.seconds * len(job.clients)

    def _first_seen(self, job: Job) -> _Seen | None:
        if not isinstance(job, AskClients) or job.round != self._round:
            return None
        return self._seen.get(job.clients[0])


class Schedule:
    """The jobs of one ask that nobody has begun, and those that somebody is busy with.

    Args:
        jobs: all of them; workers are given their numbers.
        times: what is known of their cost.
    """

    def __init__(self, jobs: Sequence[Job], times: Times) -> None:
        self.jobs, self.times = jobs, times
        self._expected = [times.expected(job) for job in jobs]
        # By powers of two: jobs of about the same cost stay in their order, in which the server adds up replies.
        self._waiting = sorted(range(len(jobs)), key=lambda n: -math.frexp(self._expected[n])[1])
        self._busy: dict[Hashable, tuple[int, float]] = {}

    def next(self, worker: Hashable, others: Sequence[Hashable]) -> int | None:
        """The number of the job that a free worker should begin; None to leave what is waiting to others."""
        homes = {n: self.times.home(self.jobs[n]) for n in self._waiting}
        mine = [n for n in self._waiting if homes[n] == worker]
        free = [n for n in self._waiting if homes[n] not in others and homes[n] != worker]
        theirs = [n for n in self._waiting if homes[n] in others and self._better_here(n, homes[n], homes)]
        for n in (*mine, *free, *reversed(theirs)):
            self._waiting.remove(n)
            self._busy[worker] = n, time.monotonic()
            return n
        return None

    def again(self, n: int) -> None:
        """Put a job back that was begun."""
        self._waiting.insert(0, n)

    def ended(self, worker: Hashable) -> None:
        """A worker is no longer busy."""
        self._busy.pop(worker, None)

    def _better_here(self, n: int, home: Hashable, homes: dict[int, Hashable]) -> bool:
        """Whether doing job n away from home, at once, ends before its home would be done with all it has to do."""
        left = sum(self._expected[m] for m, owner in homes.items() if owner == home)
        if home in self._busy:
            current, since = self._busy[home]
            left += max(0.0, self._expected[current] - (time.monotonic() - since))
        return self._expected[n] + self.times.lost(self.jobs[n]) < left
