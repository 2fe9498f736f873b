"""Several runs of a store in parallel, each in its own process on one core.

No core waits for the last client of a phase or for the server, and a machine with more cores than clients per round can
use all of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.engines.dispatch import WorkerError
from fedcmoo.engines.serialization import for_other_process
from fedcmoo.engines.worker_handle import how_ended
from fedcmoo.history import Record
from fedcmoo.interrupts import Interrupts
from fedcmoo.runs import Runs
from fedcmoo.validation import at_least_one

PATIENCE = 60.0
"""Seconds that an interrupted run has to save its finished rounds, before its process is killed."""


class Watch(Protocol):
    """What is told about the progress of the runs, such as a group of progress bars."""

    def planned(self, runs: int) -> None: ...
    def started(self, name: str, rounds: int) -> None: ...
    def advanced(self, name: str, round: int) -> None: ...
    def warned(self, name: str, text: str) -> None: ...
    def ended(self, name: str, error: Exception | None) -> None: ...


@dataclass
class RunProcess:
    """The process of a run, and the connection on which it sends its rounds, warnings and errors."""

    name: str
    config: RunConfig
    process: SpawnProcess
    reports: Connection
    error: Exception | None = None

    @classmethod
    def start(cls, name: str, config: RunConfig, runs: Runs) -> RunProcess:
        reports, sending = get_context("spawn").Pipe(duplex=False)
        one_core = config if config.engine is not None else replace(config, engine=Local())
        arguments = (one_core, runs.folder, runs.published, sending)
        process = get_context("spawn").Process(target=_make, args=arguments)
        process.start()
        sending.close()
        return cls(name, config, process, reports)

    def receive(self, watch: Watch) -> bool:
        """Receive a report and pass it on; returns False once the process has ended."""
        try:
            report = self.reports.recv()
        except (EOFError, OSError):
            self.process.join()
            if self.process.exitcode and self.error is None:
                self.error = WorkerError(
                    f"the process of {self.name} ended unexpectedly ({how_ended(self.process.exitcode)}); run the "
                    "command again to continue from its last checkpoint, with fewer jobs if memory ran out"
                )
            watch.ended(self.name, self.error)
            return False
        except Exception as error:  # such as one whose module only the run's process has imported
            self.error = WorkerError(f"{self.name} failed, and its error cannot be loaded ({error})")
            return True
        if isinstance(report, Exception):
            self.error = report
        elif isinstance(report, str):
            watch.warned(self.name, report)
        else:
            watch.advanced(self.name, report)
        return True


def make_in_parallel(runs: Runs, configs: Mapping[str, RunConfig], jobs: int, watch: Watch) -> None:
    """Make the runs that the store does not hold yet, up to `jobs` at the same time.

    A run that fails does not affect the others; `runs.get` raises its error later. If this process is interrupted or
    killed, all runs save their finished rounds and end. A script that calls this must do so under
    `if __name__ == "__main__":`, since the processes import it.

    Args:
        runs: the store.
        configs: the runs by name. Those without an engine run on one core.
        jobs: the number of processes.
        watch: is told about the progress.
    """
    at_least_one(jobs=jobs)
    waiting = deque(runs.missing(configs).items())
    if not waiting:
        return
    watch.planned(len(waiting))
    running: dict[Connection, RunProcess] = {}
    with Interrupts() as interrupts:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    with interrupts.held():  # so that every process that was started is ended below
                        run = RunProcess.start(*waiting.popleft(), runs)
                        running[run.reports] = run
                    watch.started(run.name, run.config.rounds)
                for reports in wait(running):
                    assert isinstance(reports, Connection)
                    run = running[reports]
                    if not run.receive(watch):
                        del running[reports]
                        if run.error is not None:
                            runs.note_failure(run.config, run.error)
        finally:
            with interrupts.held():
                _end([run.process for run in running.values()])


def _end(processes: list[SpawnProcess]) -> None:
    """End processes after they have saved their finished rounds."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE)
        process.kill()


class _Reports(Callback):
    """Sends the number of every finished round."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def after_round(self, record: Record) -> None:
        self.send(record.round)

    def send(self, report: int | str | BaseException) -> None:
        with contextlib.suppress(OSError):  # the parent is gone: `_end_with_parent` ends the run
            self.connection.send(report)


class _Warnings(logging.Handler):
    """Sends the texts of warnings."""

    def __init__(self, reports: _Reports) -> None:
        super().__init__(logging.WARNING)
        self.reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        self.reports.send(record.getMessage())


def _make(config: RunConfig, folder: Path, published: Path | None, connection: Connection) -> None:
    """Make one run, in its own process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reports = _Reports(connection)
    logging.basicConfig(handlers=[_Warnings(reports)])
    logging.captureWarnings(True)
    try:
        Runs(folder, lambda name: [reports], published=published).get(config)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        reports.send(for_other_process(error))


def _end_with_parent() -> None:
    """Wait until the parent process has ended, then end this one like SIGTERM, after saving finished rounds."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
