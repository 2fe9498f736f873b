"""The choice and the start of a run's engine. All engines give the same bits, so the choice affects only the time."""

import contextlib
import logging
import os
import time
from pathlib import Path

from fedcmoo.contributions import Channels
from fedcmoo.engines import serialization
from fedcmoo.engines.base import Engine, Session, TripSession
from fedcmoo.engines.dispatch import WorkerError
from fedcmoo.engines.local import Local
from fedcmoo.engines.pool import Pool, usable_cores
from fedcmoo.engines.worker_handle import IN_WORKER
from fedcmoo.optimizers import SGD
from fedcmoo.privacy.secure import secure_of
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

log = logging.getLogger(__name__)

WORTH_WORKERS = 20.0
"""Seconds of work above which workers, which take some seconds to start, save time."""

WORKER_BYTES = 2**29
"""Memory of a worker in addition to its gradients: torch, the model's activations."""

PROBE = 16
"""The number of samples in the batch that is timed."""

PROBE_LR = 1e-6
"""The learning rate of that step; its time does not depend on it."""


def choose_engine(
    engine: Engine | None,
    problem: Problem,
    channels: Channels,
    sizes: Sizes,
    *,
    clients_per_round: int,
    steps: int,
    batch_size: int | None,
) -> Engine:
    """The engine requested, or else a pool if there are cores, enough work, and a problem that can be pickled.

    The work is that of `steps` local steps, of all clients and rounds together, on `batch_size` samples each.
    """
    if IN_WORKER in os.environ:
        raise WorkerError(
            "fit was called while a worker imported the main script; put the call under `if __name__ == '__main__':`"
        )
    if engine is not None:
        if not hasattr(engine, "start"):
            raise TypeError(f"engine must be one such as Local(), but got {engine!r}")
        if secure_of(channels) is not None and not getattr(engine, "several_trips", False):
            raise ValueError(
                "secure sums are for nodes on other machines, and for tests on the engine 'local', but the engine is "
                f"{type(engine).__name__}, whose workers all belong to one user"
            )
        return engine
    if secure_of(channels) is not None:
        return Local()
    workers = min(usable_cores(), clients_per_round, workers_in_memory(sizes))
    if workers <= 1 or seconds_of_step(problem, channels, sizes, batch_size) * steps < WORTH_WORKERS:
        return Local()
    obstacle = _why_not_sent(problem, channels)
    if obstacle is not None:
        log.info("this run would be faster with worker processes, but %s", obstacle)
        return Local()
    return Pool(workers=workers)


def start_engine(engine: Engine, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> Session:
    """Start an engine; if a stage asks for secure sums, the asks of its session take several trips."""
    session = engine.start(problem, channels, seed, sizes)
    secure = secure_of(channels)
    if secure is None:
        return session
    from fedcmoo.engines.secure import SecureSession  # needs the extra "privacy"

    assert isinstance(session, TripSession)
    return SecureSession(session, secure, channels, sizes)


def workers_in_memory(sizes: Sizes) -> int:
    """The number of workers that fit into half of the memory, if each holds two sets of gradients of all objectives."""
    gradients = sizes.d * sizes.dtype.itemsize * sizes.M
    return memory() // 2 // (2 * gradients + WORKER_BYTES)


def memory(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory in bytes that this process may use: the machine's, or its container's limit if that is lower."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**33
    limits = [physical]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int((cgroups / file).read_text()))
    return min(limits)


def seconds_of_step(problem: Problem, channels: Channels, sizes: Sizes, batch_size: int | None) -> float:
    """An estimate of the time of one local step on one core, from a step on a small batch."""
    with Local().start(problem, channels, 0, sizes) as session:
        worker = session.worker
        client = worker.client(worker.model.state, round=0, i=0)
        client.share = problem.share(0)
        samples = len(client.data)
        batch = samples if batch_size is None else min(batch_size, samples)
        probe = min(PROBE, batch)
        best = float("inf")
        for _ in range(2):  # the first step of a process is slower
            start = time.perf_counter()
            client.train([1 / problem.M] * problem.M, 1, PROBE_LR, SGD(), probe)
            best = min(best, time.perf_counter() - start)
    return best * batch / probe


def _why_not_sent(problem: Problem, channels: Channels) -> str | None:
    try:
        needs_main = serialization.dumps((problem, dict(channels))).needs_main
    except serialization.NOT_PICKLABLE as error:
        return f"the problem cannot be sent to them: {error}"
    return "some of it is defined in the main script; with engine=Pool() they import that" if needs_main else None
