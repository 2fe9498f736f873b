"""Live progress: a line with round, losses, weights, speed and time left; or a bar for each of several runs."""

import sys
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.history import Record

WIDE = 80
"""Terminals with fewer columns show only the round and the time left."""


class ProgressBar(Callback):
    """Shows a progress bar in a terminal, or about ten plain lines of text if the output is piped.

    Args:
        console: the output; standard error by default, so that standard output contains only results.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self._progress: Progress | None = None
        self._last = ""

    def on_start(self, training: Training) -> None:
        self._rounds = training.rounds
        if not self.console.is_terminal:
            return
        details = [
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
        ]
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            *(details if self.console.width >= WIDE else ()),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task = self._progress.add_task("", total=training.rounds, completed=len(training.history), speed="")
        self._progress.start()

    def after_round(self, record: Record) -> None:
        scores = record.scores
        if scores is not None:
            self._last = "loss " + " ".join(f"{s['loss']:.3f}" for s in list(scores.values())[:4])
        weights = "w " + " ".join(f"{w:.2f}" for w in list(record.weights.values())[:4])
        text = f"{self._last}  {weights}"
        seconds = sum(record.seconds.values())
        if self._progress is not None:
            self._progress.update(self._task, completed=record.round, description=text, speed=f"{seconds:.2f} s/round")
        elif record.round == self._rounds or record.round % max(1, self._rounds // 10) == 0:
            line = f"round {record.round}/{self._rounds}  {text}  {seconds:.2f} s/round"
            self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class ProgressBars:
    """Shows a bar for each of several parallel runs, or if the output is piped, about ten lines of text for each.

    Args:
        console: the output.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            *([BarColumn(bar_width=20)] if console.width >= WIDE else ()),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._progress.add_task("runs")
        self._tasks: dict[str, TaskID] = {}
        self._rounds: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def planned(self, runs: int) -> None:
        self._progress.update(self._all, total=runs)

    def started(self, name: str, rounds: int) -> None:
        self._rounds[name] = rounds
        self._tasks[name] = self._progress.add_task(f"{name}: round", total=rounds)
        if not self.console.is_terminal:
            self._print(f"{name}: started")

    def advanced(self, name: str, round: int) -> None:
        rounds = self._rounds[name]
        self._progress.update(self._tasks[name], completed=round)
        if not self.console.is_terminal and round < rounds and round % max(1, rounds // 10) == 0:
            self._print(f"{name}: round {round}/{rounds}")

    def ended(self, name: str, error: Exception | None) -> None:
        self._progress.remove_task(self._tasks[name])
        self._progress.advance(self._all)
        self._print(f"{name}: {'finished' if error is None else f'failed: {error}'}")

    def warned(self, name: str, text: str) -> None:
        self._print(f"{name}: {text}")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)
