"""Weights from losses: the gradients of torchjd's scalarizations, and the method that uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcmoo import FedAvg, fit
from fedcmoo.methods import Scalarized
from fedcmoo.types import Vector
from fedcmoo.weights import FindWeights
from fedcmoo.weights.scalarization import (
    COSMOS,
    DWA,
    FAMO,
    IMTLL,
    PBI,
    GeometricMean,
    LossRule,
    SmoothTchebycheff,
    UncertaintyWeighting,
)
from tests.core.problems import quadratics

R = [1.0, 2.0, 5.0]
LOSSES = [np.array([2.0, 0.3, 9.0]), np.array([1.5, 0.29, 9.1]), np.array([1.4, 0.2, 7.0]), np.array([1.3, 0.2, 5.0])]


def gradient(scalarizer: Any, losses: Vector) -> Vector:
    """∂S/∂F, divided by the sum of absolute values."""
    F = torch.from_numpy(losses).requires_grad_()
    scalarizer(F).backward()
    assert F.grad is not None
    return (F.grad / F.grad.abs().sum()).numpy()


@pytest.fixture
def torchjd() -> Any:
    return pytest.importorskip("torchjd.scalarization", reason="the extra torchjd is not installed")


@pytest.mark.parametrize(
    ("rule", "theirs"),
    [
        (GeometricMean(), lambda t, r: t.GeometricMean()),
        (SmoothTchebycheff(mu=0.7), lambda t, r: t.STCH(0.7)),
        (SmoothTchebycheff(mu=0.7, preference=R), lambda t, r: t.STCH(0.7, r)),
        (COSMOS(penalty=2.0, preference=R), lambda t, r: t.COSMOS(2.0, r)),
        (PBI(theta=0.3, preference=R), lambda t, r: t.PBI(0.3, r)),
    ],
)
def test_weights_are_the_gradient_of_torchjds_scalarization(
    rule: LossRule, theirs: Callable[[Any, Tensor], Any], torchjd: Any
) -> None:
    r = torch.tensor(R, dtype=torch.float64) / sum(R)
    for losses in LOSSES:
        assert np.allclose(rule(losses, {}), gradient(theirs(torchjd, r), losses), atol=1e-5)


def test_dwa_has_the_weights_of_torchjd(torchjd: Any) -> None:
    """A round is an epoch: the weights of the next one come from the last two."""
    theirs = torchjd.DWA()
    memory: dict[str, Tensor] = {}
    for n, losses in enumerate(LOSSES):
        ours = DWA()(losses, memory)
        theirs(torch.from_numpy(losses))
        theirs.step()
        if n:
            assert np.allclose(ours, gradient(theirs, LOSSES[-1]))
            theirs._loss_sum = None  # the call above was no batch of the next epoch
            theirs._n_batches = 0
        else:
            assert np.allclose(ours, 1 / 3)


def test_famo_has_the_weights_of_torchjd(torchjd: Any) -> None:
    theirs = torchjd.FAMO(3).double()
    memory: dict[str, Tensor] = {}
    for n, losses in enumerate(LOSSES):
        if n:
            theirs.update(torch.from_numpy(losses))
        assert np.allclose(FAMO()(losses, memory), gradient(theirs, losses), atol=1e-6)


@pytest.mark.parametrize(("rule", "name"), [(UncertaintyWeighting, "UW"), (IMTLL, "IMTLL")])
def test_learnt_scales_have_the_weights_of_torchjd(rule: Callable[..., LossRule], name: str, torchjd: Any) -> None:
    theirs = getattr(torchjd, name)(3).double()
    memory: dict[str, Tensor] = {}
    for losses in LOSSES:
        ours = rule(lr=0.1)(losses, memory)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        theirs(torch.from_numpy(losses)).backward()
        optimizer.step()
        assert np.allclose(ours, gradient(theirs, losses))
        optimizer.zero_grad()


def test_uncertainty_weights_tend_to_one_over_the_losses() -> None:
    losses = np.array([1.0, 2.0, 0.5])
    memory: dict[str, Tensor] = {}
    for _ in range(2000):
        w = UncertaintyWeighting(lr=0.1)(losses, memory)
    assert np.allclose(w, GeometricMean()(losses, {}), atol=1e-6)


def test_the_first_round_has_equal_weights() -> None:
    assert list(fit(quadratics(M=3), Scalarized(), rounds=1).history[0].weights.values()) == [1 / 3] * 3


def test_a_round_costs_m_numbers_more_than_fedavg() -> None:
    problem = quadratics(M=3)
    costs = [fit(problem, method, rounds=1, clients_per_round=5).uploaded for method in (FedAvg(), Scalarized())]
    assert 0 < costs[1] - costs[0] - 5 * 3 * 8 < 5 * 30  # and a header


@pytest.mark.parametrize(
    ("rule", "settings", "message"),
    [
        (SmoothTchebycheff, {"mu": 0.0}, "mu must be positive"),
        (SmoothTchebycheff, {"preference": [1.0, -1.0]}, "preference"),
        (DWA, {"temperature": -1.0}, "temperature must be positive"),
        (COSMOS, {"penalty": -1.0}, "penalty must be zero or positive"),
        (PBI, {"theta": float("nan")}, "theta must be zero or positive"),
        (FAMO, {"lr": -1.0}, "lr must be zero or positive"),
    ],
)
def test_wrong_settings_are_refused(rule: type[LossRule], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule(**settings)


def test_a_preference_of_the_wrong_length_and_a_rule_for_gram_matrices_are_refused_before_work_starts() -> None:
    with pytest.raises(ValueError, match=r"one number per objective \(3\)"):
        fit(quadratics(M=3), Scalarized(weights=PBI(preference=[1.0, 2.0])), rounds=1)
    with pytest.raises(TypeError, match="a rule for losses"):
        Scalarized(weights=FindWeights())  # type: ignore[arg-type]
