"""Sensitivity of clipped contributions, and the distribution of the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedcmoo.gram.base import gram_matrix
from fedcmoo.privacy.clipping import QuantileClip, clip, l2_norm
from fedcmoo.privacy.noise import add_noise, gaussian


def hostile_arrays(case: int) -> dict[str, Tensor]:
    """Contributions of clients, random ones and ones made to break a bound."""
    random = torch.Generator().manual_seed(case)
    scale = 10.0 ** (case % 13 - 6)
    arrays = {
        "matrix": scale * torch.randn(3, 50 + case, generator=random),
        "vector": torch.randn(7, generator=random) / scale,
    }
    if case % 5 == 0:
        arrays["vector"][0] = 3e38
    if case % 7 == 0:
        arrays["matrix"].fill_(1e-38)
    return arrays


@pytest.mark.parametrize("bound", [1e-4, 0.3, 1.0, 1234.5])
def test_sums_with_and_without_a_client_differ_by_at_most_the_bound(bound: float) -> None:
    for case in range(60):
        arrays = hostile_arrays(case)
        clipped = clip(arrays, bound)
        exact = math.sqrt(sum((a.double() ** 2).sum().item() for a in clipped.values()))
        assert exact <= bound
        norm = l2_norm(arrays.values())
        assert exact == pytest.approx(min(norm, bound), rel=1e-5)  # no more is lost than must be
        for name, array in arrays.items():  # all arrays have been scaled alike
            expected = array.double() * min(1, bound / norm)
            torch.testing.assert_close(clipped[name].double(), expected, rtol=1e-5, atol=1e-38)


def test_an_array_of_degree_two_is_scaled_by_the_square_and_one_of_degree_zero_not_at_all() -> None:
    h = torch.tensor([[3.0, 4.0]])
    arrays = {"h": h, "own": h @ h.T, "loss": torch.tensor([7.0])}
    clipped = clip(arrays, 0.5, {"h": 1, "own": 2, "loss": 0})
    assert clipped["h"].tolist()[0] == pytest.approx([0.3, 0.4])
    assert clipped["own"].item() == pytest.approx(0.25)
    assert clipped["loss"].item() == 7
    lying = clip({"h": torch.zeros(1, 2), "own": torch.tensor([[1e9]])}, 0.5, {"own": 2})
    assert lying["own"].item() <= 0.25


def test_arrays_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        clip({"a": torch.tensor([1.0, math.nan])}, 1.0)


def test_quantile_clipping_finds_the_quantile() -> None:
    """From far away, with noise, the bound comes to the 70th percentile of log-normal norms."""
    norms = np.random.default_rng(3).lognormal(size=(300, 200))
    clipping, bound = QuantileClip(100.0, quantile=0.7), 100.0
    tail = []
    for cohort in norms:
        votes = sum(clipping.vote(norm, bound) for norm in cohort)
        votes = float(add_noise(torch.tensor(votes, dtype=torch.float64), std=5.0))
        bound = clipping.next_bound(bound, votes, n=200)
        tail.append(bound)
    expected = math.exp(stats.norm.ppf(0.7))
    assert np.mean(tail[100:]) == pytest.approx(expected, rel=0.05)


def test_noise_has_the_stated_variance_and_is_normal() -> None:
    std, draws = 0.37, 200_001
    noise = add_noise(torch.zeros(draws, dtype=torch.float64), std).numpy()
    statistic = float((noise**2).sum() / std**2)  # chi-square with `draws` degrees of freedom
    assert 1e-6 < stats.chi2.cdf(statistic, draws) < 1 - 1e-6
    assert stats.kstest(noise / std, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / math.sqrt(draws)


def test_noise_is_independent_across_the_keys_of_a_large_array() -> None:
    noise = add_noise(torch.zeros(2**21 + 3), 1.0).numpy()
    assert abs(np.corrcoef(noise[: 2**20], noise[2**20 : 2**21])[0, 1]) < 5 / 2**10
    assert stats.chi2.cdf(float((noise.astype(np.float64) ** 2).sum()), len(noise)) == pytest.approx(
        0.5, abs=0.5 - 1e-6
    )


def test_noise_cannot_be_predicted_from_seeds() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        draws.append(add_noise(torch.zeros(1000), 1.0))
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.2


def test_noise_is_added_to_the_total_in_its_own_dtype_and_shape() -> None:
    total = torch.arange(6.0).view(2, 3)
    noised = add_noise(total, 1e-9)
    assert noised.dtype == total.dtype
    torch.testing.assert_close(noised, total)


def test_equal_keys_give_equal_numbers_and_different_keys_do_not() -> None:
    assert np.array_equal(gaussian(bytes(32), 10), gaussian(bytes(32), 10))
    assert not np.array_equal(gaussian(bytes(32), 10), gaussian(bytes(31) + b"\1", 10))


def test_debiased_gram_matrix_is_unbiased() -> None:
    random = torch.Generator().manual_seed(1)
    H = torch.randn(3, 40, generator=random, dtype=torch.float64)
    exact = (H @ H.T).numpy()
    std, draws = 0.8, 4000
    estimates = np.empty((draws, 3, 3))
    for t in range(draws):
        Y = add_noise(H, std)
        estimates[t] = gram_matrix(Y, noise=std)
    z = (estimates.mean(axis=0) - exact) / (estimates.std(axis=0) / math.sqrt(draws))
    assert np.abs(z).max() < 5
    assert (40 * std**2) / (estimates.std(axis=0).max() / math.sqrt(draws)) > 25  # without it, the test would fail
