"""What runs in a worker process: it serves one run after the other, job by job."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import select
import socket
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any

import torch

from fedcmoo.client import State
from fedcmoo.engines import wire
from fedcmoo.parameters import Precision
from fedcmoo.rounds import Sizes, Sums
from fedcmoo.worker import Worker


@dataclass(frozen=True)
class Contract:
    """What a worker is told when a run begins; the file descriptors of two pieces of shared memory follow it.

    Attributes:
        size, contents: of the parcel with problem and tasks, in the first piece. In the second, the server publishes
            the model.
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
    """What a worker answers to a contract (nothing, or an error) and to each job."""

    sums: Sums | None = None
    seconds: float = 0.0
    error: BaseException | None = None
    out_of_memory: bool = False


def serve(end: int) -> None:
    """The life of a worker process; `end` is its file descriptor of the socket pair."""
    threading.Thread(target=_die_with_server, args=[end], daemon=True).start()
    connection = Connection(end)
    with contextlib.suppress(EOFError, ConnectionError):  # the server is gone
        while True:
            _serve_one_run(connection)


def _serve_one_run(connection: Connection) -> None:
    contract = wire.receive(connection)
    if contract is None:  # the end of one that could not be begun
        return
    fds = _receive_memory(connection)
    try:
        worker, state = _begin(contract, *fds)
    except BaseException as error:  # also what a script raises that ends itself when it is imported
        wire.send(connection, _failure(error))
        return
    wire.send(connection, Reply())
    while (job := wire.receive(connection)) is not None:
        start = time.perf_counter()
        try:
            reply = Reply(job.run(worker, state), time.perf_counter() - start)
        except Exception as error:
            reply = _failure(error)
        wire.send(connection, reply)
        del job, reply  # large ones should not outlive their job


def _die_with_server(end: int) -> None:
    """Wait until nobody holds the other end of the socket pair; then there is nothing left to do, or to tidy up."""
    poll = select.poll()
    poll.register(end, select.POLLHUP)
    poll.poll()
    os._exit(0)


def _receive_memory(connection: Connection) -> list[int]:
    with socket.socket(fileno=os.dup(connection.fileno())) as unix:
        _, fds, _, _ = socket.recv_fds(unix, 1, 2)
    return fds


def _begin(contract: Contract, parcel: int, model: int) -> tuple[Worker, State]:
    torch.set_num_threads(contract.threads)
    spawn.prepare(contract.preparation)
    problem, tasks = wire.open_parcel(parcel, contract.size, contract.contents)
    worker = Worker(problem, tasks, contract.seed, precision=contract.precision)
    published = mmap.mmap(model, model_bytes(worker.sizes))
    os.close(parcel)
    os.close(model)
    return worker, state_in(published, worker.sizes)


def model_bytes(sizes: Sizes) -> int:
    """The size of the memory in which a model is published."""
    return sizes.counters * 8 + (sizes.d + sizes.buffers) * sizes.dtype.itemsize


def state_in(memory: mmap.mmap, sizes: Sizes) -> State:
    """A model that lives in shared memory: the counters first, then x and the buffers."""
    everything = torch.frombuffer(memory, dtype=torch.uint8)
    counters, floats = (
        everything[: sizes.counters * 8].view(torch.int64),
        everything[sizes.counters * 8 :].view(sizes.dtype),
    )
    return State(floats[: sizes.d], floats[sizes.d :], counters)


def _failure(error: BaseException) -> Reply:
    """An error as a reply: of its own type where that can be sent, with the place where it happened."""
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        notes = error.__notes__
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.__notes__ = notes
    return Reply(error=error, out_of_memory=_is_out_of_memory(error))


def _is_out_of_memory(error: BaseException) -> bool:
    """Of torch's allocators only the text of their RuntimeError tells."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text)
    )
