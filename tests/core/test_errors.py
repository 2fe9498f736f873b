"""Mistakes are found before work starts, and say the rule, the value and the fix."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcmoo import FSMGDA, FedAvg, FedCMOO, FedCMOOPref, Metric, Objective, Problem, fit
from fedcmoo.acceptance import Acceptance
from fedcmoo.engines import Local
from fedcmoo.failures import DivergedError
from fedcmoo.gram import Exact
from fedcmoo.history import read_history
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.methods import MGDA
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix
from fedcmoo.weights import MinNorm
from fedcmoo.worker import Request, Worker
from tests.core.problems import Point, SquaredDistance, classification, quadratics


@pytest.mark.parametrize("value", [-0.1, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["client_lr", "server_lr"])
def test_learning_rates(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, but got {value}"):
        FedCMOO(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("local_steps", 0), ("batch_size", 0), ("local_steps", 1.5)])
def test_counts(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, but got {value}"):
        FedCMOO(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, 7])
def test_clients_per_round(n: int) -> None:
    with pytest.raises(ValueError, match=rf"from 1 to the number of clients \(6\), but got {n}"):
        fit(quadratics(clients=6), FedAvg(), clients_per_round=n)


def test_empty_client_data() -> None:
    problem = quadratics(clients=2)
    problem.clients = [(torch.zeros(0, 1), torch.zeros(0, 2, 3))] * 2
    with pytest.raises(ValueError, match="the data of client 0 must have at least one sample"):
        fit(problem, FedAvg())


def test_duplicate_names() -> None:
    objective = Objective("a", SquaredDistance(0))
    with pytest.raises(ValueError, match="names must be distinct, but 'a' occurs more than once"):
        Problem(Point(2), [objective, objective], clients=[(torch.zeros(1, 1), torch.zeros(1, 1, 2))])


def test_no_objective_no_client_no_parameter() -> None:
    data = [(torch.zeros(1, 1), torch.zeros(1, 1, 2))]
    with pytest.raises(ValueError, match="at least one objective"):
        Problem(Point(2), [], data)
    with pytest.raises(ValueError, match="at least one client"):
        Problem(Point(2), [Objective("a", SquaredDistance(0))], [])
    with pytest.raises(ValueError, match="no trainable parameter"):
        Problem(nn.ReLU(), [Objective("a", SquaredDistance(0))], data)


def test_a_loss_that_is_not_a_scalar() -> None:
    problem = quadratics()
    problem.objectives = [Objective("rows", lambda x, t: x.sum(dim=1))]
    with pytest.raises(ValueError, match=r"loss of objective 'rows' must be a scalar tensor, but got \(2,\)"):
        fit(problem, FedAvg())


def test_a_metric_that_is_none_and_one_that_is_missing() -> None:
    with pytest.raises(TypeError, match=r"fedcmoo\.Metric"):
        Objective("a", SquaredDistance(0), metrics=["accuracy"])  # type: ignore[list-item]
    problem = quadratics()
    problem.objectives = [Objective("a", SquaredDistance(0), [Metric("rows", lambda x, t: x.sum(dim=1))])]
    with pytest.raises(ValueError, match="metric 'rows' of objective 'a' must be a scalar"):
        fit(problem, FedAvg())


def test_shared_parameters_that_do_not_exist() -> None:
    data = [(torch.zeros(1, 1), torch.zeros(1, 1, 2))]
    with pytest.raises(ValueError, match="'encoder', but the model has no trainable parameter"):
        Problem(Point(2), [Objective("a", SquaredDistance(0))], data, shared=["encoder"])


def test_fixed_weights() -> None:
    with pytest.raises(ValueError, match="non-negative numbers with a positive sum"):
        FedAvg(weights=[1, -1])
    with pytest.raises(ValueError, match=r"one per objective \(2\), but got 3"):
        fit(quadratics(M=2), FedAvg(weights=[1, 1, 1]), 1)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(OSError, match="must be writable"):
        fit(quadratics(), FedAvg(), 1, folder=tmp_path / "run")


class Explodes:
    """A loss that becomes NaN once x has gone far enough."""

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        return (1 - x.square().sum(dim=1)).sqrt().mean()


@pytest.mark.parametrize("method", [FedAvg(client_lr=0.2, local_steps=3), FedCMOO(client_lr=0.2, local_steps=3)])
def test_a_nan_ends_the_run_and_names_round_objective_and_client(tmp_path: Path, method: FedAvg) -> None:
    problem = quadratics(M=2)
    problem.objectives = [Objective("far", SquaredDistance(0, 1.0)), Objective("root", Explodes())]
    with torch.no_grad():
        problem.model.x.fill_(0.1)  # type: ignore[operator]
    with pytest.raises(DivergedError, match=r"objective 'root' became NaN or infinite in round \d+ at client \d"):
        fit(problem, method, 200, folder=tmp_path, evaluate_every=1, checkpoint_every=1, engine=Local())
    records = read_history(tmp_path / "history.jsonl")
    assert records
    assert (tmp_path / "checkpoint.safetensors").exists()
    assert all(math.isfinite(s["loss"]) for r in records for s in (r.test or {}).values() if r is not records[-1])


def test_a_model_that_only_the_evaluation_sees_break_ends_the_run(tmp_path: Path) -> None:
    method = FedAvg(client_lr=0.1, local_steps=1, server_lr=1e25)
    with pytest.raises(DivergedError, match=r"became NaN or infinite in round 1: its test loss is (nan|inf)"):
        fit(classification(), method, 1, folder=tmp_path, engine=Local(), acceptance=Acceptance(max_norm=1e300))


def test_mgda_has_everyone_in_its_cohort() -> None:
    problem = quadratics()
    result = fit(problem, MGDA(), 1, clients_per_round=2, engine=Local())
    assert result.history[0].cohort == list(range(problem.N))
    assert 0 < result.uploaded - result.fsmgda_upload < problem.N * 20  # M gradients and a header a client


def test_outputs_and_targets_must_match_the_objectives() -> None:
    problem = classification()
    problem.objectives = [*problem.objectives, Objective("third", nn.functional.cross_entropy)]
    with pytest.raises(ValueError, match=r"one entry per objective \(3\), but got 2"):
        fit(problem, FedAvg(), 1)


@pytest.mark.parametrize("method", [FedCMOO, FSMGDA, MGDA])
def test_a_number_is_no_weighting_rule(method: type[FedCMOO]) -> None:
    with pytest.raises(TypeError, match="weights must be a rule"):
        method(weights=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [FedCMOO, FedCMOOPref])
def test_a_rule_is_no_estimator(method: type[FedCMOO]) -> None:
    with pytest.raises(TypeError, match=r"gram must be an estimator such as Sketch\(\)"):
        method(gram=MinNorm())  # type: ignore[arg-type]


def test_a_number_is_no_engine() -> None:
    with pytest.raises(TypeError, match=r"engine must be one such as Local\(\)"):
        fit(classification(), FedAvg(), 1, engine=2)  # type: ignore[arg-type]


def test_weights_stay_where_the_gram_matrix_is_not_finite() -> None:
    @dataclass(frozen=True)
    class Overflowing(Exact):
        def combine(self, sums: Sums) -> Matrix:
            G = super().combine(sums)
            return G if next(estimates) == 0 else G * np.inf

    estimates = itertools.count()

    result = fit(classification(), FedCMOO(gram=Overflowing(), batch_size=16), 3, clients_per_round=3, engine=Local())
    first, second, _ = (record.weights for record in result.history)
    assert first == second


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("jacobian", Message()),
        ("jacobian", Message(seed=torch.tensor([0.5]))),
        ("train", Message(w=torch.full((7,), 1 / 7, dtype=torch.float64))),
        ("train", Message(w=torch.tensor([0.5, torch.nan], dtype=torch.float64))),
    ],
)
def test_a_client_checks_what_the_server_sends(phase: str, message: Message) -> None:
    worker = Worker(classification(), FedCMOO(batch_size=16).channels(), seed=0)
    with pytest.raises(BadMessageError, match="the server"):
        worker.reply(worker.model.state, Request(0, "", {phase: message}), 0)
