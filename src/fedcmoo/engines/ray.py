"""The Ray engine: long-lived workers on one machine, or on a cluster whose members trust each other."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from fedcmoo.contributions import Channels
from fedcmoo.engines.dispatch import WorkerSession, check_workers
from fedcmoo.failures import bounded
from fedcmoo.files import delete_abandoned, lock_folder
from fedcmoo.optional import require
from fedcmoo.parameters import State, check_device
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from fedcmoo.worker import Job, Worker

SESSIONS = "fedcmoo-ray-"
"""The start of the names of folders with Ray's files."""

_locks: list[IO[str]] = []
"""The locks of this process's folders, held until it ends."""


@dataclass(frozen=True)
class Ray:
    """Run clients in Ray actors, each with the problem's data and one model, which add up their clients' replies.

    Args:
        workers: the number of workers; by default one per CPU of the machine or cluster.
        address: the address of a running cluster, which must require its token and have this library installed on its
            machines; None for this machine alone.
        device: the device of the workers' models; "cuda" takes one GPU each.
        deadline, retries: as in `Pool`.
    """

    workers: int | None = None
    address: str | None = None
    device: str = "cpu"
    deadline: float = 600.0
    retries: int = 2

    def __post_init__(self) -> None:
        check_workers(self.workers, self.deadline, self.retries)
        if self.address is None:  # a cluster's machines may have devices that this one lacks
            check_device(self.device)

    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> RaySession:
        return RaySession(problem, channels, seed, self)


def connect(settings: Ray) -> bool:
    """Connect to Ray, unless already connected. Returns whether a new connection was made, which the caller must close.

    On this machine Ray listens only on loopback, and its files are deleted when the process ends. A cluster must
    require its token, since anyone who reaches it can run any code there; RAY_AUTH_MODE=disabled in the environment
    turns this off.
    """
    ray = require("ray", "ray")
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 leaves workers waiting on a busy machine
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if settings.address is not None:
        if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token" and _is_open(settings.address):
            raise ConnectionRefusedError(
                f"a Ray cluster must ask for its token, but {settings.address} does not: start it with "
                "RAY_AUTH_MODE=token ray start ..., or set RAY_AUTH_MODE=disabled here if nobody else can reach it"
            )
        ray.init(settings.address, **quiet)
    else:
        # Workers on this machine find the same modules as this process, including the user's.
        env = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
        folder = _session_folder()
        atexit.register(_end, ray, folder)
        with _on_loopback():
            ray.init(
                "local", num_cpus=settings.workers, include_dashboard=False, runtime_env=env, _temp_dir=folder, **quiet
            )
    return True


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray listen on 127.0.0.1, its default on macOS and Windows; elsewhere the default is all interfaces."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _session_folder() -> str:
    """A new folder for Ray's files, locked by this process; those of processes that were killed are deleted."""
    parent = Path("/tmp" if os.name == "posix" else tempfile.gettempdir())  # short, for sockets
    delete_abandoned(parent.glob(f"{SESSIONS}*"))
    folder = tempfile.mkdtemp(prefix=SESSIONS, dir=parent)
    _locks.append(lock_folder(Path(folder)))
    return folder


def _end(ray: Any, folder: str) -> None:
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def _is_open(address: str) -> bool:
    """Whether a process without a token can connect to a cluster."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    code = f"import ray; ray.init({address!r}, log_to_driver=False, logging_level='error')"
    attempt = subprocess.run(
        [sys.executable, "-c", code], env={**without, "RAY_AUTH_MODE": "disabled"}, capture_output=True, check=False
    )
    return attempt.returncode == 0


class RaySession(WorkerSession[Any]):
    """The actors of one run."""

    def __init__(self, problem: Problem, channels: Channels, seed: int, settings: Ray) -> None:
        self._ray = require("ray", "ray")
        self._started_ray = connect(settings)
        gpus = int(settings.device.startswith("cuda"))
        self._actor = self._ray.remote(_Actor).options(num_cpus=1, num_gpus=gpus, max_concurrency=1)
        self._setup = (self._ray.put((problem, dict(channels))), seed, settings.device)
        self._state: Any = None
        self._actor_of: dict[Any, Any] = {}  # by the reference of the task it was sent
        count = settings.workers or int(self._ray.cluster_resources().get("CPU", 1))
        super().__init__(problem, count, settings.deadline, settings.retries)

    def start(self) -> Any:
        actor = self._actor.remote(*self._setup)
        self._actor_of[actor.ready.remote()] = actor
        return actor

    def publish(self, state: State) -> None:
        self._state = self._ray.put(state.to(torch.device("cpu")))

    def send(self, worker: Any, job: Job) -> None:
        self._actor_of[worker.run.remote(job, self._state)] = worker

    def receive(self, timeout: float | None) -> Iterator[tuple[Any, Sums | str | None]]:
        self._ray.wait(list(self._actor_of), timeout=timeout)
        for reference in self._ray.wait(list(self._actor_of), num_returns=len(self._actor_of), timeout=0)[0]:
            actor = self._actor_of.pop(reference)
            try:
                yield actor, self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:  # what the job itself raised
                raise
            except self._ray.exceptions.RayError as error:
                yield actor, bounded(str(error))

    def end(self, worker: Any) -> str:
        self._actor_of = {reference: actor for reference, actor in self._actor_of.items() if actor is not worker}
        self._ray.kill(worker)
        return "ended"

    def close(self) -> None:
        for actor in self.workers:
            self._ray.kill(actor)
        if self._started_ray:
            self._ray.shutdown()
        super().close()


class _Actor:
    """The actor of one worker."""

    def __init__(self, shared: tuple[Problem, Channels], seed: int, device: str) -> None:
        torch.set_num_threads(1)
        problem, channels = shared
        self._worker = Worker(problem, channels, seed, device)

    def ready(self) -> None:
        """Reply once the worker has been created."""

    def run(self, job: Any, state: State) -> Sums:
        sums: Sums = job.run(self._worker, state)
        return sums
