"""The code in CONTRIBUTING runs, and does what the text says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcmoo import FedAvg, FedCMOO, fit
from fedcmoo.cli.listing import registries
from fedcmoo.config import RunConfig
from fedcmoo.contributions import Contribution
from fedcmoo.engines import Local
from fedcmoo.gram import Exact
from fedcmoo.privacy import Clip
from fedcmoo.stages import STAGES
from tests.core.problems import classification, quadratics

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(), re.DOTALL)
SETTINGS: dict[str, Any] = {"clients_per_round": 4, "seed": 1, "engine": Local(), "evaluate_every": 3}
LOCAL: dict[str, Any] = {"local_steps": 2, "batch_size": 16}


def names() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": __name__}
    for block in BLOCKS:
        exec(block, found)
    return found


def test_the_method_is_fedavg() -> None:
    mine = fit(classification(), names()["Mine"](**LOCAL), 3, **SETTINGS)
    fedavg = fit(classification(), FedAvg(**LOCAL), 3, **SETTINGS)
    assert [r.without_time() for r in mine.history] == [r.without_time() for r in fedavg.history]


def test_a_client_adds_half_of_its_previous_update() -> None:
    """On a quadratic with the whole data in a batch, one client and one step: x <- x - (g + v/2), v <- g + v/2."""
    momentum = names()["Momentum"]

    class Heavy(FedAvg):
        def contributions(self) -> Mapping[str, Contribution]:
            return {"train": momentum(self.client_lr, 1, None, self.optimizer, False)}

    problem = quadratics(M=1, clients=1)
    method = Heavy(client_lr=0.1, batch_size=None)
    result = fit(problem, method, 3, clients_per_round=1, engine=Local())
    x = v = torch.zeros(3, dtype=torch.float64)
    for _ in range(3):
        v = 0.1 * (x - problem.clients[0][1].mean(dim=0)[0]) + 0.5 * v
        x = x - v
    assert torch.allclose(result.model.x, x, atol=1e-12)  # type: ignore[arg-type]


def test_the_estimator_has_the_diagonal_of_the_exact_one_with_one_client() -> None:
    problem, method = classification(clients=1), FedCMOO(**LOCAL)
    grams = [
        fit(problem, replace(method, gram=gram), 1, **{**SETTINGS, "clients_per_round": 1}).history[0].gram
        for gram in (names()["Norms"](), Exact())
    ]
    np.testing.assert_allclose(np.diag(np.array(grams[0])), np.diag(np.array(grams[1])), rtol=1e-5)
    assert np.array(grams[0])[0, 1] == 0


def test_the_stage_bounds_what_one_round_changes() -> None:
    """Every entry of every update is at most the bound, so the mean moves x by no more."""
    problem = classification()
    start = {name: value.clone() for name, value in problem.model.named_parameters()}
    for bound in (1e-3, 1e9):
        result = fit(problem, FedAvg(**LOCAL), 1, **SETTINGS, stages=[names()["Clamp"](bound)])
        moved = max((value - start[name]).abs().max().item() for name, value in result.model.named_parameters())
        assert 1e-4 < moved <= bound * 1.001


def test_a_registered_stage_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    clamp = names()["Clamp"]
    monkeypatch.setitem(STAGES, "clamp", clamp)
    config = RunConfig.from_table({"stage": {"name": "clamp", "bound": 0.5}, "clip": 2.0})
    assert config.stages == (clamp(0.5), Clip(2.0))
    assert RunConfig.from_table(config.to_table()) == config
    assert "clamp" in registries()["stages"]
