"""torchjd's rules as weights of FedCMOO give torchjd's own weights; `test_every_rule.py` has what all rules share."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
import torch

from fedcmoo import FedCMOO, fit
from fedcmoo.optional import MissingExtraError
from fedcmoo.weights import WEIGHTS, MinNorm, Normalized, TorchJD
from tests.core.problems import classification

pytest.importorskip("torchjd", reason="the extra torchjd is not installed")
from torchjd import aggregation

G = np.array([[2.0, -0.5, 0.3], [-0.5, 1.0, 0.1], [0.3, 0.1, 4.0]])
EQUAL = np.full(3, 1 / 3)


def make(name: str, **settings: Any) -> Any:
    if name == "nash-mtl":
        pytest.importorskip("ecos", reason="ecos is not installed")
    return WEIGHTS[name](**settings)


@pytest.mark.parametrize(
    ("name", "weighting"),
    [
        ("mgda", lambda: aggregation.MGDAWeighting()),
        ("cagrad", lambda: aggregation.CAGradWeighting(0.5)),
        ("fairgrad", lambda: aggregation.FairGradWeighting(1.0)),
        ("imtl-g", lambda: aggregation.IMTLGWeighting()),
        ("aligned-mtl", lambda: aggregation.AlignedMTLWeighting()),
        ("krum", lambda: aggregation.KrumWeighting(0)),
        ("pcd", lambda: aggregation.PCDWeighting()),
        ("modo", lambda: aggregation.MoDoWeighting()),
        ("sdmgrad", lambda: aggregation.SDMGradWeighting()),
        ("mean", lambda: aggregation.MeanWeighting()),
    ],
)
def test_names_and_objects_give_torchjds_weights(name: str, weighting: Any) -> None:
    expected = weighting()(torch.from_numpy(G)).numpy()
    assert np.allclose(make(name, normalize=False)(EQUAL, G), expected)
    assert np.allclose(TorchJD(weighting(), normalize=False)(EQUAL, G), expected)
    assert np.allclose(make(name)(EQUAL, G), expected / np.abs(expected).sum())


def test_nash_mtl_solves_its_equation() -> None:
    """G w = 1/w, up to the scale of w; it wants a Jacobian, and gets one with the same Gram matrix."""
    w = make("nash-mtl")(EQUAL, G)
    assert np.allclose(w * (G @ w), (w * (G @ w)).mean(), rtol=0.02)


def test_methods_take_torchjds_objects_as_they_are() -> None:
    problem = classification()
    by_object = fit(problem, FedCMOO(weights=aggregation.CAGradWeighting(0.5), local_steps=2), rounds=2)
    by_name = fit(problem, FedCMOO(weights=make("cagrad"), local_steps=2), rounds=2)
    by_aggregator = fit(problem, FedCMOO(weights=aggregation.CAGrad(0.5), local_steps=2), rounds=2)
    assert by_object.weights == by_name.weights == by_aggregator.weights


def test_objects_with_preferences_of_single_precision_work() -> None:
    preference = torch.tensor([1.0, 2.0, 3.0])
    for rule in (aggregation.AlignedMTLWeighting(preference), aggregation.UPGradWeighting(preference)):
        assert np.isfinite(TorchJD(rule)(EQUAL, G)).all()


def test_an_object_that_remembers_is_not_changed_by_a_run() -> None:
    """Two runs with one object give the same weights, and smoothing does go over rounds."""
    rule = aggregation.CRMOGMWeighting(aggregation.PCGradWeighting(), alpha=0.9)
    runs = [fit(classification(), FedCMOO(weights=rule, local_steps=2), rounds=3).history for _ in range(2)]
    assert [r.weights for r in runs[0]] == [r.weights for r in runs[1]]
    assert rule._lambda is None
    first, second = (np.array(list(r.weights.values())) for r in runs[0][:2])
    alone = TorchJD(aggregation.PCGradWeighting())(np.full(2, 0.5), np.array(runs[0][1].gram))
    assert np.abs(second - first).max() < np.abs(alone - first).max() + 1e-12


def test_weights_of_no_use_leave_the_previous_ones() -> None:
    """CAGrad gives zeros where the gradients cancel out."""
    w = np.array([0.3, 0.7])
    assert make("cagrad")(w, np.array([[1.0, -1.0], [-1.0, 1.0]])).tolist() == w.tolist()


@pytest.mark.parametrize(
    "rule", [lambda: aggregation.GradDrop(), lambda: aggregation.ExcessMTLWeighting(), lambda: torch.nn.Linear(2, 2)]
)
def test_what_needs_the_whole_jacobian_is_refused(rule: Any) -> None:
    with pytest.raises(TypeError, match="a Gram matrix is enough for"):
        TorchJD(rule())
    with pytest.raises(TypeError, match="a Gram matrix is enough for"):
        FedCMOO(weights=rule())  # before any work
    with pytest.raises(TypeError, match="a Gram matrix is enough for"):
        Normalized(rule())


def test_without_torchjd_names_can_be_listed_and_the_error_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    assert "pcgrad" in WEIGHTS
    with pytest.raises(MissingExtraError, match=r"pip install '.*torchjd"):
        WEIGHTS["pcgrad"]()


def test_a_missing_solver_is_told_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("torchjd._mixins.find_spec", lambda name: None if name == "cvxpy" else found(name))
    with pytest.raises(MissingExtraError, match=r"cvxpy.*pip install '.*torchjd"):
        WEIGHTS["cagrad"]()


def test_normalized_weights_make_the_scale_of_a_loss_irrelevant() -> None:
    """Scaling loss k by s scales row and column k of G; the weighted loss must stay the same up to a factor."""
    s = np.array([4.0, 1.0, 0.01])
    scaled = G * np.outer(s, s)
    for rule in (MinNorm(), make("upgrad"), aggregation.CAGradWeighting(0.4)):
        normalized = Normalized(rule)
        w, w_scaled = normalized(EQUAL, G), normalized(EQUAL, scaled)
        assert w_scaled.sum() == pytest.approx(1)
        assert np.allclose(w_scaled * s / (w_scaled * s).sum(), w, atol=1e-4)
    assert Normalized()(EQUAL, np.zeros((3, 3))).tolist() == EQUAL.tolist()


def test_normalized_min_norm_descends_on_every_objective() -> None:
    for seed in range(20):
        A = np.random.default_rng(seed).normal(size=(4, 6)) * [[1], [10], [0.1], [3]]
        w = Normalized()(np.full(4, 0.25), A @ A.T)
        assert (A @ A.T @ w).min() > -1e-9
