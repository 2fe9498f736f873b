"""The Flower server app, whose main function is the usual `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcmoo.acceptance import Acceptance
from fedcmoo.callbacks import Callback
from fedcmoo.contributions import Stage
from fedcmoo.download import Download
from fedcmoo.engines.remote import Remote
from fedcmoo.failures import Skip, Stop
from fedcmoo.flower.client import MakeMethod, MakeProblem
from fedcmoo.flower.transport import GridTransport
from fedcmoo.history import Record
from fedcmoo.result import Result
from fedcmoo.run import RESULT
from fedcmoo.settings import from_table
from fedcmoo.training import fit


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings in the run config: keys of [tool.flwr.app.config], with hyphens for underscores. Other keys are free
    for use.

    Args:
        rounds, clients_per_round, seed, evaluate_every, checkpoint_every, download: as in `fit`; "none" for None.
        folder: the folder on the server for history, checkpoints, model and result; "none" to write nothing.
        resume: continue the run in `folder`.
        max_norm: as in `Acceptance`.
        on_failure: "skip" or "stop"; min_replies, pause: as in `Skip`.
        deadline, start_deadline: as in `Remote`.
    """

    rounds: int = 100
    clients_per_round: int | None = None
    seed: int = 0
    evaluate_every: int = 5
    checkpoint_every: int = 10
    download: Download = "full"
    folder: str | None = None
    resume: bool = False
    max_norm: float = 1e8
    on_failure: Literal["skip", "stop"] = "skip"
    min_replies: int = 1
    pause: int = 5
    deadline: float = 600.0
    start_deadline: float = 120.0

    @classmethod
    def of(cls, context: Context) -> RunSettings:
        """Read a run's config."""
        known = {f.name for f in fields(cls)}
        table = {key.replace("-", "_"): value for key, value in context.run_config.items()}
        return from_table(cls, {key: value for key, value in table.items() if key in known})


def server_app(problem: MakeProblem, method: MakeMethod, stages: Sequence[Stage] = ()) -> ServerApp:
    """A Flower server app that runs a method over all nodes, with checkpoints, history and resume.

    The problem's clients may be elsewhere (see `fedcmoo.data.remote`); its test and validation data, if any, are on the
    server. For the run config, see `RunSettings`.

        app = server_app(problem, method)

    Args:
        problem, method: functions that create the problem and the method of a run.
        stages: as in `fit`; client apps take the same.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        run(grid, context, problem, method, stages)

    return app


def run(grid: Grid, context: Context, problem: MakeProblem, method: MakeMethod, stages: Sequence[Stage] = ()) -> Result:
    """Do one run, from its config to `result.json`. (Flower's exit codes do not show whether a run succeeded.)"""
    settings = RunSettings.of(context)
    folder = None if settings.folder is None else Path(settings.folder)
    if folder is not None:
        # It shows that the run succeeded, so that of an earlier run must be deleted.
        (folder / RESULT).unlink(missing_ok=True)
    result = fit(
        problem(context),
        method(context),
        settings.rounds,
        clients_per_round=settings.clients_per_round,
        seed=settings.seed,
        engine=Remote(GridTransport(grid), settings.deadline, settings.start_deadline),
        evaluate_every=settings.evaluate_every,
        checkpoint_every=settings.checkpoint_every,
        folder=folder,
        resume=settings.resume,
        acceptance=Acceptance(settings.max_norm),
        on_failure=Skip(settings.min_replies, settings.pause) if settings.on_failure == "skip" else Stop(),
        callbacks=[PrintRounds()],
        stages=stages,
        download=settings.download,
    )
    print(result)
    return result


class PrintRounds(Callback):
    """Log a line for each round, which Flower writes to the run's log and `flwr run --stream` shows."""

    def after_round(self, record: Record) -> None:
        print(describe(record), flush=True)


def describe(record: Record) -> str:
    """One line of text about a round."""
    seconds = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in record.seconds.items() if phase != "server")
    failures = f"; failed: {record.failures}" if record.failures else ""
    return f"round {record.round}: {seconds}{failures}"
