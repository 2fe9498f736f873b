"""Robust means against closed forms, SciPy and hostile clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from fedcmoo.privacy.robust import geometric_median, trimmed_mean


def test_trimmed_mean_is_scipys() -> None:
    replies = torch.randn(20, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for trim in (0.0, 0.1, 0.25, 0.45):
        np.testing.assert_allclose(trimmed_mean(replies, trim), stats.trim_mean(replies.numpy(), trim, axis=0))


def test_trimmed_mean_rounds_the_number_of_hostile_clients_up() -> None:
    replies = torch.ones(9, 2)
    replies[0] = 1e30
    assert trimmed_mean(replies, 0.1).tolist() == [1.0, 1.0]


def test_geometric_median_minimises_the_sum_of_distances() -> None:
    points = torch.randn(9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def total(x: np.ndarray) -> float:
        return float(np.linalg.norm(points.numpy() - x, axis=1).sum())

    best = optimize.minimize(total, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert total(geometric_median(points).numpy()) == pytest.approx(best.fun, rel=1e-8)


def test_geometric_median_may_be_one_of_the_points() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert geometric_median(points).tolist() == [0.0, 0.0]
    assert geometric_median(torch.ones(4, 3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("attack", [1e3, -1e30, 1.0])
def test_a_hostile_minority_moves_neither_far(attack: float) -> None:
    honest = 1 + 0.1 * torch.randn(14, 1000, generator=torch.Generator().manual_seed(2))
    replies = torch.cat([honest, torch.full((6, 1000), attack)])
    for mean in (trimmed_mean(replies, 0.3), geometric_median(replies)):
        assert (mean - 1).abs().max() < 0.25


def test_trim_must_leave_something() -> None:
    with pytest.raises(ValueError, match="1/2"):
        trimmed_mean(torch.ones(4, 1), 0.5)
    with pytest.raises(ValueError, match="leaves none"):
        trimmed_mean(torch.ones(2, 1), 0.4)
