"""Log the numbers of every round to TensorBoard, Weights & Biases or MLflow (extras of the same names)."""

import re
import time
from pathlib import Path
from typing import Any

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.client_scores import STATISTICS, statistic
from fedcmoo.history import Record
from fedcmoo.methods import METHODS
from fedcmoo.optional import require
from fedcmoo.result import Result
from fedcmoo.settings import described, flatten


def numbers(record: Record) -> dict[str, float]:
    """Losses and metrics by split and objective, weights, traffic, seconds and the method's notes.

    >>> numbers(Record(1, [0], {"left": 1.0}, up={"train": 8}))["traffic/up"]
    8
    """
    found: dict[str, float] = {}
    for split, scores in (("test", record.test), ("validation", record.validation)):
        for objective, values in (scores or {}).items():
            found |= {f"{split}/{metric}/{objective}": value for metric, value in values.items()}
    for name in STATISTICS if record.client_test else ():
        for objective, values in statistic(record.client_test or {}, name).items():
            found |= {f"client_test/{metric}/{objective}/{name}": value for metric, value in values.items()}
    found |= {f"weights/{objective}": weight for objective, weight in record.weights.items()}
    if record.grad_norm_sq is not None:
        found["grad_norm_sq"] = record.grad_norm_sq
    found |= {f"notes/{name}": value for name, value in record.notes.items()}
    found["traffic/up"], found["traffic/down"] = sum(record.up.values()), sum(record.down.values())
    found["seconds"] = sum(record.seconds.values())
    return found


def settings(training: Training) -> dict[str, Any]:
    """The problem's name and the method's settings."""
    return {"problem": training.problem.name, "method": described(training.method, METHODS)}


class TensorBoard(Callback):
    """Logs losses, metrics, weights, traffic and seconds of every round.

    Args:
        folder: the folder of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        self._tensorboard = require("torch.utils.tensorboard", extra="tensorboard")
        self._folder = str(folder)
        self._writer: Any = None

    def on_start(self, training: Training) -> None:
        # Created here because it makes the folder, which must not happen before all checks.
        self._writer = self._tensorboard.SummaryWriter(self._folder)

    def after_round(self, record: Record) -> None:
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandB(Callback):
    """Logs losses, metrics, weights, traffic and seconds of every round, and the method's settings as configuration.

    Args:
        project: the project of the run.
        settings: further arguments of `wandb.init`, such as `mode="offline"` or `name="first try"`.
    """

    def __init__(self, project: str = "fedcmoo", **settings: Any) -> None:
        self._wandb = require("wandb", extra="wandb")
        self._settings = {"project": project, **settings}
        self._run: Any = None

    def on_start(self, training: Training) -> None:
        self._run = self._wandb.init(config={**settings(training), "rounds": training.rounds}, **self._settings)

    def after_round(self, record: Record) -> None:
        self._run.log(numbers(record), step=record.round)

    def on_end(self, result: Result) -> None:
        self._run.summary.update(result.summary())

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


class MLflow(Callback):
    """Logs losses, metrics, weights, traffic and seconds of every round, and the method's settings as parameters.

    Args:
        experiment: the experiment of the run.
        tracking_uri: the URI of the server or the local store; None for MLflow's default.
        run_name: the name of the run.
    """

    def __init__(
        self, experiment: str = "fedcmoo", tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        self._mlflow = require("mlflow", extra="mlflow")
        self._experiment, self._uri, self._name = experiment, tracking_uri, run_name
        self._client: Any = None

    def on_start(self, training: Training) -> None:
        self._client = self._mlflow.MlflowClient(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(number, run_name=self._name).info.run_id
        self._status = "FAILED"
        for name, value in flatten(settings(training)).items():
            self._client.log_param(self._run, name, value)

    def after_round(self, record: Record) -> None:
        now = int(1000 * time.time())
        # MLflow allows only these characters in names.
        found = {re.sub(r"[^\w./ -]", "_", name): value for name, value in numbers(record).items()}
        metrics = [self._mlflow.entities.Metric(name, value, now, record.round) for name, value in found.items()]
        self._client.log_batch(self._run, metrics=metrics)  # one request

    def on_end(self, result: Result) -> None:
        self._status = "FINISHED"

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run, self._status)
            self._client = None
