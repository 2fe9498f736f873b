"""Callbacks: when runs stop, which model is the best, and what loggers get."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from fedcmoo import Callback, FedAvg, Metric, Objective, fit
from fedcmoo.callbacks import BestModel, EarlyStop, MLflow, TensorBoard, Training, WandB
from fedcmoo.callbacks.best import Best
from fedcmoo.engines import Local
from fedcmoo.history import Record
from fedcmoo.problem import Problem
from tests.core.problems import classification, quadratics

METHOD = FedAvg(client_lr=0.3, local_steps=2, batch_size=8)


def watched(best: Best, problem: Problem, curves: list[dict[str, float]], metric: str = "loss") -> list[bool | None]:
    """What is said of evaluations with these scores, by objective."""
    best.start(Training(problem, METHOD, 9, [], None, None))  # type: ignore[arg-type]
    scores = [{name: {metric: value} for name, value in row.items()} for row in curves]
    return [best.update(Record(t, [0], {}, test=values)) for t, values in enumerate(scores, start=1)]


def test_by_rank_no_objective_outweighs_another() -> None:
    # The second is a thousand times larger: a mean would follow it alone. Ranks of the last: 1.5 and 2 of 3.
    curves = [{"first": 1.0, "second": 3000.0}, {"first": 0.5, "second": 2000.0}, {"first": 0.9, "second": 1000.0}]
    assert watched(Best(split="test"), classification(), curves) == [True, True, False]
    assert watched(Best("loss", split="test"), classification(), curves) == [True, True, True]
    assert watched(Best("loss", "first", split="test"), classification(), curves) == [True, True, False]


def test_a_metric_may_belong_to_some_objectives_and_have_any_direction() -> None:
    def error(output: Tensor, target: Tensor) -> Tensor:
        return (output.argmax(dim=1) != target).double().mean()

    problem = classification()
    first, second = problem.objectives
    problem.objectives = [first, Objective("second", second.loss, [Metric("error", error, higher_is_better=False)])]
    up = [{"first": 0.5, "second": 0.5}, {"first": 0.6, "second": 0.6}]
    assert watched(Best("accuracy", split="test"), problem, up, "accuracy") == [True, True]
    assert watched(Best("error", split="test"), problem, up, "error") == [True, False]
    with pytest.raises(ValueError, match="must have the metric 'f1'"):
        watched(Best("f1", split="test"), problem, [])
    with pytest.raises(ValueError, match="objective 'third' must have the metric 'loss'"):
        watched(Best(objective="third", split="test"), problem, [])
    with pytest.raises(ValueError, match="Best needs validation data, but the problem has none"):
        watched(Best(), problem, [])


def test_early_stop_and_own_callbacks() -> None:
    seen: list[int] = []

    class Watch(Callback):
        def after_round(self, record: Record) -> None:
            seen.append(record.round)

    # At the minimum from the start, nothing gets better: one evaluation to set the mark, two to wait.
    problem = quadratics(M=1)
    method = FedAvg(client_lr=1.0, local_steps=1, batch_size=None)
    stop = EarlyStop("loss", patience=2, split="test", min_delta=1e-9)
    fit(problem, method, 50, clients_per_round=problem.N, evaluate_every=1, callbacks=[stop, Watch()])
    assert seen == [1, 2, 3]


def test_the_best_model_is_kept_and_written(tmp_path: Path) -> None:
    class Ruin(Callback):
        """After three good rounds, only noise."""

        def on_start(self, training: Training) -> None:
            self.server = training.server

        def after_round(self, record: Record) -> None:
            if record.round >= 3:
                self.server.x = torch.full_like(self.server.x, 0.5)

    best = BestModel("loss", split="test")
    result = fit(
        classification(), METHOD, 6, evaluate_every=1, folder=tmp_path, callbacks=[best, Ruin()], engine=Local()
    )
    losses = [sum(values["loss"] for values in record.test.values()) for record in result.history if record.test]
    assert best.round == 1 + losses.index(min(losses)) < 6
    assert best.model is not None
    saved = safetensors.torch.load_file(tmp_path / "best.safetensors")
    alone = fit(classification(), METHOD, best.round, engine=Local())
    for name, value in alone.model.state_dict().items():
        assert torch.equal(saved[name], value)
        assert torch.equal(best.model.state_dict()[name], value)


def test_a_resumed_run_knows_the_best_round_before_it(tmp_path: Path) -> None:
    whole, first, second = (BestModel(split="test") for _ in range(3))
    options: dict[str, Any] = {"evaluate_every": 1, "engine": Local()}
    fit(classification(), METHOD, 6, callbacks=[whole], **options)
    fit(classification(), METHOD, 3, callbacks=[first], folder=tmp_path, **options)
    fit(classification(), METHOD, 6, callbacks=[second], folder=tmp_path, resume=True, **options)
    assert second.round == whole.round


@pytest.mark.usefixtures("curves")
def test_a_metric_that_is_nan_is_left_out(tmp_path: Path) -> None:
    problem = classification()
    first, second = problem.objectives
    broken = Metric("ratio", lambda output, target: torch.tensor(0.0) / 0)
    problem.objectives = [Objective("first", first.loss, [*first.metrics, broken]), second]
    result = fit(problem, METHOD, 2, folder=tmp_path, engine=Local())
    assert set(result.scores["first"]) == {"loss", "accuracy"}
    assert (tmp_path / "curves.png").exists()


def test_tensorboard_files_hold_the_curves(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    fit(classification(), FedAvg(local_steps=1), 3, evaluate_every=1, callbacks=[TensorBoard(tmp_path)], engine=Local())
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [e.step for e in events.Scalars("test/accuracy/first")] == [1, 2, 3]
    with pytest.raises(ValueError, match="clients_per_round"):
        fit(classification(), FedAvg(), clients_per_round=1000, callbacks=[TensorBoard(tmp_path / "none")])
    assert not (tmp_path / "none").exists()


@pytest.mark.filterwarnings("ignore")  # of the library itself
def test_mlflow_gets_settings_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logger = MLflow("tests", tracking_uri=tmp_path.as_uri())
    result = fit(classification(), METHOD, 3, evaluate_every=1, callbacks=[logger], engine=Local())
    client = mlflow.MlflowClient(tmp_path.as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["method.client_lr"] == "0.3"
    curve = client.get_metric_history(run.info.run_id, "test/loss/first")
    assert [m.value for m in curve] == [r.test["first"]["loss"] for r in result.history if r.test]


def _payload(log: bytes) -> bytes:
    """What a log in LevelDB's format holds: pieces with 7 bytes of header each, in blocks of 32 KiB."""
    block, header, at, pieces = 2**15, 7, 7, []
    while at < len(log):
        left = block - at % block
        if left < header:
            at += left
            continue
        size = int.from_bytes(log[at + 4 : at + 6], "little")
        pieces.append(log[at + header : at + header + size])
        at += header + size
    return b"".join(pieces)


@pytest.mark.filterwarnings("ignore")  # of the library itself
def test_wandb_gets_settings_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandB("tests", mode="offline", dir=str(tmp_path))
    result = fit(classification(), METHOD, 3, evaluate_every=1, callbacks=[logger], engine=Local())
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    (log,) = folder.glob("*.wandb")
    deadline = time.monotonic() + 60
    while b"test/loss/first" not in (written := _payload(log.read_bytes())) and time.monotonic() < deadline:
        time.sleep(0.1)  # the library's own process writes the file, and may finish after the run
    assert b"test/loss/first" in written
    for value in (METHOD.client_lr, *(record.scores["first"]["loss"] for record in result.history if record.scores)):
        assert json.dumps(value).encode() in written
