"""The main loop of a worker process, which serves one run after the other, job by job."""

import contextlib
import mmap
import os
import select
import socket
import threading
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any

import torch

from fedcmoo.engines import serialization
from fedcmoo.parameters import Precision, State
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from fedcmoo.worker import Worker


@dataclass(frozen=True)
class RunSetup:
    """The message to a worker at the start of a run; the file descriptors of two pieces of shared memory follow it.

    Attributes:
        size, contents: those of the `SharedObject` with problem and channels, in the first piece. The second holds the
            model.
        preparation: sys.path and the like, for `multiprocessing.spawn.prepare`.
        seed, threads, precision: of the run.
    """

    size: int
    contents: slice
    preparation: dict[str, Any]
    seed: int
    threads: int
    precision: Precision


@dataclass(frozen=True)
class Reply:
    """A worker's reply to a setup (nothing, or an error) or to a job."""

    sums: Sums | None = None
    error: BaseException | None = None
    out_of_memory: bool = False


def serve(end: int) -> None:
    """Serve runs until the server closes the socket pair; `end` is the file descriptor of this process's end."""
    threading.Thread(target=_die_with_server, args=[end], daemon=True).start()
    connection = Connection(end)
    with contextlib.suppress(EOFError, ConnectionError):  # the server is gone
        while True:
            _serve_one_run(connection)


def _serve_one_run(connection: Connection) -> None:
    setup = serialization.receive(connection)
    if setup is None:  # the end of a run that could not be started
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as unix:
        _, fds, _, _ = socket.recv_fds(unix, 1, 2)  # of shared memory
    try:
        worker, state = _begin(setup, *fds)
    except BaseException as error:  # including SystemExit from a script that exits when it is imported
        serialization.send(connection, _failure(error))
        return
    serialization.send(connection, Reply())
    while (job := serialization.receive(connection)) is not None:
        try:
            reply = Reply(job.run(worker, state))
        except Exception as error:
            reply = _failure(error)
        serialization.send(connection, reply)
        del job, reply  # large ones should not outlive their job


def _die_with_server(end: int) -> None:
    """Exit as soon as the other end of the socket pair is closed, however the server ended."""
    poll = select.poll()
    poll.register(end, select.POLLHUP)
    poll.poll()
    os._exit(0)


def _begin(setup: RunSetup, shared: int, model: int) -> tuple[Worker, State]:
    torch.set_num_threads(setup.threads)
    spawn.prepare(setup.preparation)
    problem, channels = serialization.load_shared(shared, setup.size, setup.contents)
    worker = Worker(problem, channels, setup.seed, precision=setup.precision)
    published = mmap.mmap(model, worker.sizes.model_bytes)
    os.close(shared)
    os.close(model)
    return worker, state_in(published, worker.sizes)


def state_in(memory: mmap.mmap, sizes: Sizes) -> State:
    """A model in shared memory: the counters first, then x and the buffers."""
    everything = torch.frombuffer(memory, dtype=torch.uint8)
    counters, floats = (
        everything[: sizes.counters * 8].view(torch.int64),
        everything[sizes.counters * 8 :].view(sizes.dtype),
    )
    return State(floats[: sizes.d], floats[sizes.d :], counters)


def _failure(error: BaseException) -> Reply:
    """An error as a reply."""
    error = serialization.for_other_process(error)
    return Reply(error=error, out_of_memory=_is_out_of_memory(error))


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed; torch's allocators raise a RuntimeError that can only be identified by its text."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text)
    )
