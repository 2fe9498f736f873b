"""Which engine a run gets if it asks for none. All give the same bits, so the choice is only about time."""

from __future__ import annotations

import logging
import os
import time

from fedcmoo.client import Client
from fedcmoo.engines import wire
from fedcmoo.engines.base import Engine
from fedcmoo.engines.local import Local
from fedcmoo.engines.pool import Pool, WorkerError, usable_cores
from fedcmoo.engines.process import IN_WORKER
from fedcmoo.methods.base import Method
from fedcmoo.optimizers import SGD
from fedcmoo.problem import Problem
from fedcmoo.worker import state_of

log = logging.getLogger(__name__)

WORTH_WORKERS = 20.0
"""Seconds of work from which on workers, which take some seconds to start, are worth it."""

WORKER_BYTES = 2**29
"""Memory of a worker beside its gradients: torch, the model's activations."""

PROBE = 16
"""Samples in the batch whose time is taken."""


def choose_engine(
    engine: Engine | None, problem: Problem, method: Method, rounds: int, clients_per_round: int
) -> Engine:
    """The engine asked for; else workers if there are cores for them, enough work, and a problem that can be sent."""
    if IN_WORKER in os.environ:
        raise WorkerError(
            "fit was called while a worker imported the main script; put the call under `if __name__ == '__main__':`"
        )
    if engine is not None:
        if isinstance(engine, type) or not hasattr(engine, "start"):
            raise TypeError(f"engine must be one such as Local(), but got {engine!r}; names are for RunConfig")
        return engine
    workers = min(usable_cores(), clients_per_round, workers_in_memory(problem))
    if workers <= 1 or seconds_of_work(problem, method, rounds, clients_per_round) < WORTH_WORKERS:
        return Local()
    obstacle = _why_not_sent(problem, method)
    if obstacle is not None:
        log.info("this run would be faster with worker processes, but %s", obstacle)
        return Local()
    return Pool(workers=workers)


def workers_in_memory(problem: Problem) -> int:
    """How many workers fit into half of the machine's memory, if each has two sets of gradients of all objectives."""
    gradients = sum(p.numel() * p.element_size() for p in problem.model.parameters()) * problem.M
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**33
    return physical // 2 // (2 * gradients + WORKER_BYTES)


def seconds_of_work(problem: Problem, method: Method, rounds: int, clients_per_round: int) -> float:
    """An estimate of a run's time on one core: that of a small local step, times the number of steps."""
    with Local().start(problem, method.tasks(), seed=0) as session:
        worker = session.worker
        client = Client(problem, worker.model, state_of(worker.model), seed=0, round=0, i=0)
        samples = len(client.data)
        batch = samples if method.batch_size is None else min(method.batch_size, samples)
        probe = min(PROBE, batch)
        best = float("inf")
        for _ in range(2):  # the first one of a process is slower
            start = time.perf_counter()
            client.train([1 / problem.M] * problem.M, 1, method.client_lr, SGD(), probe)
            best = min(best, time.perf_counter() - start)
    return best * batch / probe * method.local_steps * clients_per_round * rounds


def _why_not_sent(problem: Problem, method: Method) -> str | None:
    try:
        needs_main = wire.dumps((problem, method.tasks())).needs_main
    except wire.NOT_PICKLABLE as error:
        return f"the problem cannot be sent to them: {error}"
    return "some of it is defined in the main script; with engine=Pool() they import that" if needs_main else None
