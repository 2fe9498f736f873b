"""Metrics against the paper's numbers, closed forms and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from fedcmoo.metrics import (
    angle,
    conflict_angles,
    delta_m,
    hypervolume,
    non_dominated,
    of_round,
    stationarity,
)

SINGLE = {"mnist+fmnist": (97.0, 90.1), "multimnist": (95.4, 93.1), "cifar10+mnist": (64.9, 97.1)}


@pytest.mark.parametrize(
    ("problem", "accuracies", "reported"),
    [
        ("mnist+fmnist", (93.0, 75.4), 10.22),
        ("multimnist", (92.3, 88.2), 4.26),
        ("cifar10+mnist", (58.2, 96.2), 5.63),
        ("mnist+fmnist", (95.5, 78.8), 7.04),
        ("multimnist", (94.4, 92.6), 0.79),
        ("cifar10+mnist", (57.4, 96.8), 5.93),
        ("mnist+fmnist", (94.0, 79.2), 7.60),
        ("multimnist", (93.8, 91.1), 1.91),
        ("cifar10+mnist", (63.6, 89.1), 5.12),
    ],
)
def test_delta_m_gives_the_papers_table(problem: str, accuracies: tuple[float, float], reported: float) -> None:
    """The accuracies are rounded to 0.1 in the paper, its Δ_M is not computed from the rounded ones."""
    assert delta_m(accuracies, SINGLE[problem], [True, True]) == pytest.approx(reported, abs=0.12)


def test_delta_m_knows_each_metrics_direction() -> None:
    assert delta_m([0.2, 2.0], [0.1, 4.0], [False, True]) == pytest.approx((100 + 50) / 2)
    with pytest.raises(ValueError, match="must not be zero"):
        delta_m([1.0], [0.0], [True])


@pytest.mark.parametrize("seed", range(5))
def test_non_dominated_agrees_with_the_definition_and_with_moocore(seed: int) -> None:
    moocore = pytest.importorskip("moocore", reason="the extra pareto is not installed")
    points = np.random.default_rng(seed).integers(0, 6, size=(40, 3)).astype(float)
    ours = non_dominated(points)
    assert ours.tolist() == moocore.is_nondominated(points, keep_weakly=True).tolist()
    for i, p in enumerate(points):
        dominated = any((q <= p).all() and (q < p).any() for q in points)
        assert ours[i] == (not dominated)


def test_hypervolume_is_a_volume() -> None:
    """Against the share of random points of the box that some point dominates."""
    pytest.importorskip("moocore", reason="the extra pareto is not installed")
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 1, size=(6, 3))
    box = rng.uniform(0, 1, size=(40_000, 3))
    share = np.mean(np.any(np.all(points[None] <= box[:, None], axis=2), axis=1))
    assert hypervolume(points, [1, 1, 1]) == pytest.approx(share, abs=0.01)
    assert hypervolume([[2.0, 2.0]], [1, 1]) == 0  # worse than the reference


def test_angle_between_asked_and_reached() -> None:
    assert angle([1.0, 0.5], [1, 2]) == pytest.approx(0, abs=1e-12)
    assert angle([1.0, 0.0], [1, 1]) == pytest.approx(45)
    assert angle([1.0, 1e-8], [1e-8, 1.0]) == pytest.approx(0, abs=1e-5)
    assert angle([0.0, 0.0], [1, 1]) == 0


def test_stationarity_and_conflicts_of_known_gradients() -> None:
    J = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]])
    G = J @ J.T
    assert stationarity(G) == pytest.approx(0, abs=1e-12)
    assert conflict_angles(G)[0].tolist() == pytest.approx([0, 180, 90])
    assert of_round(G)["max_angle"] == pytest.approx(180)
    assert conflict_angles(np.diag([0.0, 1.0]))[0, 1] == 90
    assert of_round(np.array([[2.0]])) == {"stationarity": pytest.approx(2.0), "max_angle": 0.0}
