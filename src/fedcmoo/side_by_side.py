"""Several runs of a store side by side, each in a process of its own on one core.

Where there are at least as many runs as cores, this is faster than one run after the other on all cores: no core waits
for the last client of a phase, and none is idle while the server works.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.engines.serialization import picklable
from fedcmoo.history import Record
from fedcmoo.interrupts import Interrupts
from fedcmoo.runs import Runs
from fedcmoo.validation import at_least_one


class Watch(Protocol):
    """What is told about the progress of the runs, such as a group of progress bars."""

    def planned(self, runs: int) -> None: ...
    def started(self, name: str, rounds: int) -> None: ...
    def advanced(self, name: str, round: int) -> None: ...
    def ended(self, name: str, error: Exception | None) -> None: ...


@dataclass
class RunProcess:
    """A run that is being made: its process, and the connection on which it sends its rounds, or an error."""

    config: RunConfig
    name: str
    process: SpawnProcess
    reports: Connection
    error: Exception | None = None

    @classmethod
    def start(cls, config: RunConfig, runs: Runs) -> RunProcess:
        reports, sending = get_context("spawn").Pipe(duplex=False)
        one_core = config if config.engine is not None else replace(config, engine=Local())
        arguments = (one_core, runs.folder, runs.published, sending)
        process = get_context("spawn").Process(target=_make, args=arguments)
        process.start()
        sending.close()
        return cls(config, runs.place(config).name, process, reports)

    def receive(self, watch: Watch) -> bool:
        """Receive a report; False once the process has ended."""
        try:
            report = self.reports.recv()
        except EOFError:
            self.process.join()
            if self.process.exitcode and self.error is None:
                self.error = RuntimeError(
                    f"the process of run {self.name} ended with exit code {self.process.exitcode} (a negative number "
                    "is a signal; 9 is often too little memory: try fewer --jobs); its finished rounds are saved"
                )
            watch.ended(self.name, self.error)
            return False
        if isinstance(report, Exception):
            self.error = report
        else:
            watch.advanced(self.name, report)
        return True


def make_side_by_side(runs: Runs, configs: Iterable[RunConfig], jobs: int, watch: Watch) -> None:
    """Make those runs that the store does not hold yet, up to `jobs` at the same time.

    A run that fails does not affect the others; `runs.get` raises its error later. If this process is interrupted or
    killed, all runs save their finished rounds and end.

    Args:
        runs: the store.
        configs: of the runs. Those without an engine run on one core.
        jobs: the number of processes.
        watch: is told about the progress.
    """
    at_least_one(jobs=jobs)
    waiting = deque({runs.place(config): config for config in configs if runs.find(config) is None}.values())
    watch.planned(len(waiting))
    running: dict[Connection, RunProcess] = {}
    with Interrupts() as interrupts:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    with interrupts.held():  # so that every process that was started is ended below
                        job = RunProcess.start(waiting.popleft(), runs)
                        running[job.reports] = job
                    watch.started(job.name, job.config.rounds)
                for reports in wait(running):
                    assert isinstance(reports, Connection)
                    job = running[reports]
                    if not job.receive(watch):
                        del running[reports]
                        if job.error is not None:
                            runs.fail(job.config, job.error)
        finally:
            for job in running.values():
                job.process.terminate()
            for job in running.values():
                job.process.join()


class _Reports(Callback):
    """Sends the number of every finished round."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def after_round(self, record: Record) -> None:
        self.connection.send(record.round)


def _make(config: RunConfig, folder: Path, published: Path | None, reports: Connection) -> None:
    """Make one run, in a process of its own."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        Runs(folder, lambda name: [_Reports(reports)], published=published).get(config)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        reports.send(picklable(error))


def _end_with_parent() -> None:
    """If the parent process is killed, end this one like SIGTERM does, after saving finished rounds."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
