"""Log runs to MLflow (extra `mlflow`)."""

from __future__ import annotations

import re
import time
from typing import Any

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.numbers import numbers
from fedcmoo.history import Record
from fedcmoo.methods import METHODS
from fedcmoo.optional import require
from fedcmoo.settings import described, flatten


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
        settings = {"problem": training.problem.name, "method": described(training.method, METHODS)}
        for name, value in flatten(settings).items():
            self._client.log_param(self._run, name, value)

    def after_round(self, record: Record) -> None:
        now = int(1000 * time.time())
        # MLflow allows only these characters in names.
        found = {re.sub(r"[^\w./ -]", "_", name): value for name, value in numbers(record).items()}
        metrics = [self._mlflow.entities.Metric(name, value, now, record.round) for name, value in found.items()]
        self._client.log_batch(self._run, metrics=metrics)  # one request

    def on_end(self, result: object) -> None:
        self._status = "FINISHED"

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run, self._status)
            self._client = None
