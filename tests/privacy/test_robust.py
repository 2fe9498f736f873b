"""Robust means against closed forms, SciPy and hostile clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from campaign.loopback import Loopback
from fedcmoo import FedAvg, FedCMOO, Problem, fit
from fedcmoo.data.remote import RemoteClients
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.gram import Exact
from fedcmoo.privacy import DifferentialPrivacy, GeometricMedian, Secure, TrimmedMean
from tests.core.problems import missing_labels, quadratics
from tests.core.runs import assert_same


def test_trimmed_mean_is_scipys() -> None:
    replies = torch.randn(20, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for trim in (0.0, 0.1, 0.25, 0.45):
        np.testing.assert_allclose(TrimmedMean(trim).mean(replies), stats.trim_mean(replies.numpy(), trim, axis=0))


def test_trimmed_mean_rounds_the_number_of_hostile_clients_up() -> None:
    replies = torch.ones(9, 2)
    replies[0] = 1e30
    assert TrimmedMean(0.1).mean(replies).tolist() == [1.0, 1.0]


def test_geometric_median_minimises_the_sum_of_distances() -> None:
    points = torch.randn(9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def total(x: np.ndarray) -> float:
        return float(np.linalg.norm(points.numpy() - x, axis=1).sum())

    best = optimize.minimize(total, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert total(GeometricMedian().mean(points).numpy()) == pytest.approx(best.fun, rel=1e-8)


def test_geometric_median_may_be_one_of_the_points() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert GeometricMedian().mean(points).tolist() == [0.0, 0.0]
    assert GeometricMedian().mean(torch.ones(4, 3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("attack", [1e3, -1e30, 1.0])
def test_a_hostile_minority_moves_neither_far(attack: float) -> None:
    honest = 1 + 0.1 * torch.randn(14, 1000, generator=torch.Generator().manual_seed(2))
    replies = torch.cat([honest, torch.full((6, 1000), attack)])
    for mean in (TrimmedMean(0.3).mean(replies), GeometricMedian().mean(replies)):
        assert (mean - 1).abs().max() < 0.25


def test_trim_must_leave_something() -> None:
    with pytest.raises(ValueError, match="1/2"):
        TrimmedMean(0.5).mean(torch.ones(4, 1))
    with pytest.raises(ValueError, match="leaves none"):
        TrimmedMean(0.4).mean(torch.ones(2, 1))


ONE_STEP = FedAvg(client_lr=0.5, local_steps=1, batch_size=None)


def with_hostile(clients: int = 9, hostile: int = 2) -> Problem:
    """Clients of which the last ones have data that are a million times further away."""
    problem = quadratics(clients=clients)
    far = [(x, 1e6 * y) for x, y in problem.clients[-hostile:]]
    return replace(problem, clients=[*problem.clients[:-hostile], *far])


def updates_of(problem: Problem) -> torch.Tensor:
    """Of one step from x = 0 with equal weights: η (x - mean over objectives and samples of c), [N, d]."""
    return torch.stack([-0.5 * y.mean(dim=(0, 1)) for _, y in problem.clients])


@pytest.mark.parametrize("robust", [TrimmedMean(0.25), GeometricMedian(), GeometricMedian(blocks=5)])
def test_a_round_takes_the_robust_mean_of_all_updates(robust: TrimmedMean | GeometricMedian) -> None:
    problem = with_hostile()
    result = fit(problem, ONE_STEP, 1, engine=Local(), stages=[robust])
    updates = updates_of(problem)
    if isinstance(robust, TrimmedMean):
        expected = torch.from_numpy(stats.trim_mean(updates.numpy(), 0.25 + 1 / 9, axis=0))  # 3 of 9 at each end
    elif robust.blocks is None:
        expected = GeometricMedian().mean(updates)
    else:
        means = [updates[list(block)].mean(dim=0) for block in ((0, 1), (2, 3), (4, 5), (6, 7), (8,))]
        expected = GeometricMedian().mean(torch.stack(means))
    assert torch.allclose(result.model.state_dict()["x"], -expected)


@pytest.mark.parametrize("method", [ONE_STEP, FedCMOO(client_lr=0.5, local_steps=2, batch_size=None, gram=Exact())])
def test_hostile_clients_do_no_harm(method: Any) -> None:
    problem = with_hostile()
    robust = fit(problem, method, 20, engine=Local(), stages=[TrimmedMean(0.25)])
    plain = fit(problem, method, 20, engine=Local())
    assert robust.model.state_dict()["x"].norm() < 10
    assert plain.model.state_dict()["x"].norm() > 1000


def test_every_engine_gives_the_same_bits(tmp_path: Path) -> None:
    problem, method, stages = with_hostile(clients=40), FedCMOO(local_steps=1, gram=Exact()), [TrimmedMean(0.1)]
    nodes = Remote(Loopback(tmp_path, problem, method, nodes=3, stages=stages))
    engines: list[Engine] = [Local(), Pool(workers=2), nodes]
    results = [fit(problem, method, 2, clients_per_round=40, engine=engine, stages=stages) for engine in engines]
    assert_same(*results)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"stages": [TrimmedMean(), Secure()]}, "secure sums hide them"),
        ({"stages": [TrimmedMean(), DifferentialPrivacy(epsilon=8.0, noise=10.0)]}, "noise of privacy is for sums"),
        ({"on": {"weights": [1.0] * 8 + [2.0]}}, "equal weights"),
        ({"on": {"owns": [["f0"]] + [["f0", "f1"]] * 8}}, "own all objectives"),
        ({"clients_per_round": 2, "stages": [TrimmedMean(0.4)]}, "leaves none of 2"),
    ],
)
def test_what_a_robust_mean_cannot_do_is_refused(settings: dict[str, Any], error: str) -> None:
    problem = replace(with_hostile(), **settings.pop("on", {}))
    with pytest.raises(ValueError, match=error):
        fit(problem, ONE_STEP, 1, **{"engine": Local(), "stages": [TrimmedMean()], **settings})


def test_missing_labels_are_refused_before_the_run_or_when_a_node_reports_them(tmp_path: Path) -> None:
    problem, robust = missing_labels(), TrimmedMean()
    with pytest.raises(ValueError, match="own all objectives"):
        fit(problem, ONE_STEP, 1, engine=Local(), stages=[robust], folder=tmp_path / "local")
    assert not (tmp_path / "local").exists()
    nodes = Remote(Loopback(tmp_path, problem, ONE_STEP, stages=[robust]))
    server = replace(problem, clients=RemoteClients(9))
    with pytest.raises(ValueError, match="own all objectives"):
        fit(server, ONE_STEP, 1, engine=nodes, stages=[robust])


class Unreadable:
    """Four samples that cannot be read together."""

    def __len__(self) -> int:
        return 4

    def batch(self, index: torch.Tensor) -> Any:
        if len(index) > 1:
            raise OSError("the disk is gone")
        return torch.zeros(1, 1), torch.zeros(1, 2, 3)


def test_a_round_with_too_few_replies_for_trimming_is_undone() -> None:
    problem = quadratics(clients=5)
    problem = replace(problem, clients=[problem.clients[0], *[Unreadable()] * 4])
    result = fit(problem, ONE_STEP, 1, engine=Local(), stages=[TrimmedMean(0.2)], on_failure="skip")
    assert "leaves none of 1" in (result.history[0].undone or "")
    assert not result.model.state_dict()["x"].any()


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="below 1/2"):
        TrimmedMean(0.5)
    with pytest.raises(ValueError, match="at least 3"):
        GeometricMedian(blocks=2)
