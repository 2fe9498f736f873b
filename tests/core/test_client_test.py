"""Evaluation on each client's own test data: distributions over clients, and what uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedcmoo import FedAvg, fit
from fedcmoo.callbacks import BestModel, EarlyStop
from fedcmoo.client_scores import distribution
from fedcmoo.engines import Local
from fedcmoo.failures import Skip
from tests.core.problems import CLIENTS, personal

SMALL: dict[str, Any] = {"local_steps": 3, "batch_size": 8}


def test_client_metrics_are_those_of_each_client_computed_by_hand() -> None:
    problem = personal()
    result = fit(problem, FedAvg(**SMALL), 1, engine=Local())
    model = result.model.eval()
    losses, right = [], []
    assert problem.client_test is not None
    with torch.no_grad():
        for x, (target, _) in problem.client_test:
            losses.append(cross_entropy(model(x)[0], target).item())
            right.append((model(x)[0].argmax(1) == target).double().mean().item())
    found = result.history[0].client_test
    assert found is not None
    assert found["first"]["loss"]["mean"] == pytest.approx(np.mean(losses), abs=1e-6)
    assert found["first"]["loss"]["worst_tenth"] == pytest.approx(max(losses), abs=1e-6)
    assert found["first"]["loss"]["spread"] == pytest.approx(np.std(losses), abs=1e-6)
    assert found["first"]["accuracy"]["worst_tenth"] == pytest.approx(min(right))
    assert found["first"]["accuracy"]["q50"] == pytest.approx(np.median(right))
    assert result.scores["first"]["accuracy"] == pytest.approx(np.mean(right))


def test_the_worst_tenth_are_a_tenth_of_the_clients() -> None:
    values = np.random.default_rng(0).permutation(25.0 * np.arange(25))
    assert distribution(values, higher_is_better=True)["worst_tenth"] == 25.0  # of 0, 25 and 50
    assert distribution(values, higher_is_better=False)["worst_tenth"] == 23 * 25.0


def test_early_stop_and_best_model_go_by_the_worst_off_clients() -> None:
    problem = personal()
    best = BestModel("accuracy", split="client_test", statistic="worst_tenth")
    stop = EarlyStop("accuracy", patience=2, split="client_test", statistic="worst_tenth")
    history = fit(problem, FedAvg(**SMALL), 30, engine=Local(), evaluate_every=1, callbacks=[best, stop]).history
    worst = [
        np.mean([record.client_test[name]["accuracy"]["worst_tenth"] for name in ("first", "second")])
        for record in history
        if record.client_test
    ]
    assert len(history) < 30
    assert best.round == 1 + int(np.argmax(worst))
    assert len(history) == best.round + 2


def test_clients_without_test_data_or_labels_do_not_count() -> None:
    problem = personal()
    assert problem.client_test is not None
    some: list[Any] = [None, *problem.client_test[1:]]
    some[1] = (some[1][0], (some[1][1][0], torch.full((50,), -1)))
    found = fit(replace(problem, client_test=some), FedAvg(**SMALL), 1, engine=Local()).history[0].client_test
    without = [None, None, *problem.client_test[2:]]
    fewer = fit(replace(problem, client_test=without), FedAvg(**SMALL), 1, engine=Local()).history[0].client_test
    assert found is not None
    assert fewer is not None
    assert found["second"] == fewer["second"]
    assert found["first"] != fewer["first"]
    nobody = [(x, (target, torch.full((50,), -1))) for x, (target, _) in problem.client_test]
    with pytest.raises(ValueError, match="labels for every objective, but no client has any for 'second'"):
        fit(replace(problem, client_test=nobody), FedAvg(**SMALL), 1, engine=Local())


class Away(Sequence[Any]):
    """Test data that some clients cannot read."""

    def __init__(self, data: Sequence[Any], away: Sequence[int]) -> None:
        self.data, self.away = data, away

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: Any) -> Any:
        if i in self.away:
            raise OSError("no such file")
        return self.data[i]


@pytest.mark.parametrize("away", [[0, 3], range(CLIENTS)])
def test_clients_that_fail_in_an_evaluation_do_not_count(away: Sequence[int]) -> None:
    problem = personal()
    assert problem.client_test is not None
    others = [None if i in away else data for i, data in enumerate(problem.client_test)]
    broken = replace(problem, client_test=Away(problem.client_test, away))
    (record,) = fit(broken, FedAvg(**SMALL), 1, engine=Local(), on_failure=Skip()).history
    assert sorted(record.failures) == [str(i) for i in away]
    if len(away) == CLIENTS:
        assert record.client_test is None
    else:
        (expected,) = fit(replace(problem, client_test=others), FedAvg(**SMALL), 1, engine=Local()).history
        assert record.client_test == expected.client_test
