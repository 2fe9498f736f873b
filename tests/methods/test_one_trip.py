"""Rounds with one trip against the recursion written out on quadratics, and what such a round sends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from campaign.loopback import Loopback
from fedcmoo import FedCMOO, fit
from fedcmoo.drift import MVR, FedCM, Storm
from fedcmoo.engines.remote import Remote
from fedcmoo.gram import Exact, TwoWay, Unbiased
from fedcmoo.methods import FSMGDAMVR, FedCMOOPref, Method
from fedcmoo.weights import MinNorm
from tests.core.problems import centres, classification, quadratics

EXACT = FedCMOO(client_lr=0.1, local_steps=1, batch_size=None, gram=Exact(), weights=MinNorm(), trips=1)


def test_weights_are_those_of_the_previous_gradients() -> None:
    """x <- x - η Σ_k w_k (x - c_k), where w is the min-norm solution of two gradients one step earlier."""
    problem = quadratics(M=2, d=4)
    history = fit(problem, EXACT, rounds=6, clients_per_round=problem.N).history
    c = centres(problem).numpy()
    x, w = np.zeros(4), 0.5
    for record in history:
        a, b = x - c
        assert list(record.weights.values()) == pytest.approx([w, 1 - w])
        assert np.allclose(
            np.asarray(record.gram), [[a @ a, a @ b], [a @ b, b @ b]]
        )  # measured where this round trained
        x = x - 0.1 * (w * a + (1 - w) * b)
        w = float(np.clip(b @ (b - a) / ((a - b) @ (a - b)), 0, 1))


@pytest.mark.parametrize("method", [EXACT, FedCMOOPref(preference=[1, 3, 9], inertia=0.5, gram=Exact(), trips=1)])
def test_a_measured_gram_is_used_once(method: FedCMOO | FedCMOOPref) -> None:
    problem = quadratics(M=3)
    history = fit(problem, replace(method, gram_every=2), rounds=6, clients_per_round=3).history
    weights = [tuple(record.weights.values()) for record in history]
    assert [record.gram is not None for record in history] == [True, False] * 3
    assert weights[0] == (1 / 3,) * 3
    assert [a != b for a, b in pairwise(weights)] == [True, False, True, False, True]


def test_pref_weighs_by_the_previous_losses_and_gradients() -> None:
    problem = quadratics(M=2, d=3)
    method = FedCMOOPref(client_lr=0.1, local_steps=1, batch_size=None, gram=Exact(), preference=[1, 3], trips=1)
    history = fit(problem, method, rounds=4, clients_per_round=problem.N).history
    x, w = torch.zeros(3, dtype=torch.float64), np.array([0.5, 0.5])
    points = torch.stack([targets for _, targets in problem.clients]).reshape(-1, 2, 3)
    for record in history:
        assert list(record.weights.values()) == pytest.approx(w)
        J = (x - points).mean(dim=0)
        losses = 0.5 * (x - points).square().sum(dim=2).mean(dim=0)
        x = x - 0.1 * torch.from_numpy(w) @ J
        w = method.weights(method.r(2), losses.numpy(), (J @ J.T).numpy()).w
    assert "kl" not in history[0].notes
    assert "kl" in history[1].notes


@pytest.mark.parametrize("method", [FedCMOO(), FedCMOOPref()])
def test_one_trip_uploads_the_same_bytes_in_one_phase(method: Method) -> None:
    problem = classification()
    two = fit(problem, method, rounds=1, clients_per_round=3).history[0]
    one = fit(problem, replace(method, trips=1), rounds=1, clients_per_round=3).history[0]  # type: ignore[call-arg]
    assert set(one.up) == {"train"}
    assert one.up["train"] == two.up["jacobian"] + two.up["train"] - 3  # three headers less
    assert one.gram == two.gram


@pytest.mark.parametrize("trips", [1, 2])
def test_nodes_keep_gradients_only_for_a_second_trip(trips: Literal[1, 2], tmp_path: Path) -> None:
    problem, method = classification(), FedCMOO(trips=trips, local_steps=2)
    nodes = Loopback(tmp_path, problem, method, nodes=2)
    fit(problem, method, 2, clients_per_round=3, engine=Remote(nodes))
    assert bool(list(tmp_path.rglob("first-*"))) == (trips == 2)


DRIFTS = [FedCM(beta=0.5), Storm(beta=0.5), MVR(beta=0.5)]
RESUMED = [*(FedCMOO(trips=1, drift=drift) for drift in DRIFTS), FedCMOOPref(trips=1), FSMGDAMVR(beta=0.5)]


@pytest.mark.parametrize("method", RESUMED, ids=repr)
def test_a_resumed_run_knows_the_last_gram_and_directions(method: Method, tmp_path: Path) -> None:
    problem, method = classification(), replace(method, client_lr=0.1, local_steps=2)
    whole = fit(problem, method, rounds=4, clients_per_round=3).history
    fit(problem, method, rounds=2, clients_per_round=3, folder=tmp_path)
    resumed = fit(problem, method, rounds=4, clients_per_round=3, folder=tmp_path, resume=True).history
    assert [(r.weights, r.gram) for r in resumed] == [(r.weights, r.gram) for r in whole]


@pytest.mark.parametrize("gram", [TwoWay(), Unbiased()])
def test_an_estimator_with_two_asks_is_refused(gram: TwoWay | Unbiased) -> None:
    with pytest.raises(ValueError, match="trips = 1 needs a Gram estimator with one phase"):
        FedCMOO(trips=1, gram=gram)
    with pytest.raises(ValueError, match="one phase"):
        FedCMOOPref(trips=1, gram=gram)


def test_trips_are_one_or_two() -> None:
    with pytest.raises(ValueError, match="trips must be 1 or 2, but got 3"):
        FedCMOO(trips=3)  # type: ignore[arg-type]
