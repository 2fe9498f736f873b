"""A ruined model never replaces a good one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedcmoo import FedAvg, Problem, fit
from fedcmoo.acceptance import Acceptance, BoundedRise
from fedcmoo.checkpoint import Checkpoint
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.failures import DivergedError
from fedcmoo.history import read_history
from fedcmoo.run_folder import NEWEST
from tests.core.problems import quadratics

METHOD = FedAvg(client_lr=0.5, local_steps=1, batch_size=None)


def with_hostile(clients: list[int], size: float) -> Problem:
    """Quadratics of which some clients pull the model very far away."""
    problem = quadratics(clients=6)
    problem.clients = [
        (x, torch.full_like(points, size)) if i in clients else (x, points)
        for i, (x, points) in enumerate(problem.clients)
    ]
    return problem


@pytest.mark.parametrize("size", [1e9, 1e30])
def test_rounds_with_a_huge_update_change_nothing(size: float) -> None:
    """x <- (x + c_i) / 2 with one client i a round, but for the hostile client, whose rounds leave x as it is."""
    problem = with_hostile([2], size)
    result = fit(problem, METHOD, 20, clients_per_round=1, engine=Local())
    x = torch.zeros(3, dtype=torch.float64)
    for record in result.history:
        (i,) = record.cohort
        assert (record.undone is not None) == (i == 2)
        if i != 2:
            centre = problem.clients[i][1].mean(dim=(0, 1))
            x = (x + centre) / 2
    assert any(record.undone for record in result.history)
    torch.testing.assert_close(result.model.state_dict()["x"], x)


def test_the_bound_is_the_users() -> None:
    problem = with_hostile([2], 50.0)
    free = fit(problem, METHOD, 20, clients_per_round=1, engine=Local())
    bounded = fit(problem, METHOD, 20, clients_per_round=1, engine=Local(), acceptance=Acceptance(max_norm=10.0))
    assert not any(record.undone for record in free.history)
    assert {i for record in bounded.history if record.undone for i in record.cohort} == {2}
    with pytest.raises(ValueError, match="max_norm must be positive"):
        Acceptance(max_norm=0)
    assert RunConfig.from_table({"acceptance": {"max_norm": 10}}).acceptance == Acceptance(10.0)


def test_a_round_with_a_large_rise_of_the_validation_loss_is_undone(tmp_path: Path) -> None:
    problem = with_hostile([2], 50.0)
    rule = BoundedRise(max_rise=3.0)
    with pytest.raises(ValueError, match="needs validation data"):
        fit(problem, METHOD, 20, clients_per_round=1, acceptance=rule)
    problem.validation = quadratics(clients=6).test
    train = partial(fit, problem, METHOD, clients_per_round=1, engine=Local(), acceptance=rule)
    train(7, folder=tmp_path)
    result = train(20, folder=tmp_path, resume=True)
    assert {i for record in result.history if record.undone for i in record.cohort} == {2}
    losses = [record.validation for record in result.history if record.validation]
    assert max(scores["f0"]["loss"] for scores in losses) < 10
    whole = train(20)  # what was accepted is remembered when a run goes on
    assert [r.undone for r in whole.history] == [r.undone for r in result.history]
    assert RunConfig.from_table({"acceptance": "bounded-rise"}).acceptance == BoundedRise()


def test_a_run_that_cannot_go_on_ends_with_the_last_good_model_saved(tmp_path: Path) -> None:
    problem = quadratics(clients=6)
    fit(problem, METHOD, 3, clients_per_round=2, folder=tmp_path, checkpoint_every=1, engine=Local())
    good = safetensors.torch.load_file(tmp_path / "model.safetensors")["x"]
    problem.clients = with_hostile([1, 2, 3, 4, 5], 1e30).clients  # client 0, whose data are compared, is as before
    with pytest.raises(DivergedError, match=r"the last 4 rounds were undone.*norm.*the model is that of round 3"):
        fit(problem, METHOD, 50, clients_per_round=2, folder=tmp_path, checkpoint_every=1, resume=True, engine=Local())
    records = read_history(tmp_path / "history.jsonl")
    assert [record.undone is not None for record in records] == [False] * 3 + [True] * 4
    assert torch.equal(Checkpoint.decode((tmp_path / NEWEST).read_bytes()).arrays["x"], good)


class Poisoned:
    """A loss that is NaN for parameters beyond some bound."""

    def __call__(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (x - targets[:, 0]).square().sum(dim=1).mean() + torch.log(100 - x.abs().max())


def test_divergence_leaves_the_last_model_that_clients_could_train_on(tmp_path: Path) -> None:
    """The steps grow until the loss is NaN; a checkpoint of that model was written, but does not stay."""
    problem = quadratics(M=1, clients=2)
    problem.objectives = [type(problem.objectives[0])("poisoned", Poisoned())]
    method = FedAvg(client_lr=2.0, local_steps=1, batch_size=None)
    with pytest.raises(DivergedError):
        fit(problem, method, 50, folder=tmp_path, checkpoint_every=1, evaluate_every=1000, engine=Local())
    left = Checkpoint.decode((tmp_path / NEWEST).read_bytes())
    assert left.round == len(read_history(tmp_path / "history.jsonl")) - 1
    assert left.arrays["x"].abs().max() < 100
