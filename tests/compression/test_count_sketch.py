"""The sketch: linear, unbiased, an error that falls as k^-1/2, and the same bits everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedcmoo.compression import CountSketch
from fedcmoo.compression.base import shared_words


def rows(M: int, d: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(M, d, generator=g, dtype=torch.float64) * torch.exp(torch.randn(d, generator=g))


def dense(sketch: CountSketch) -> torch.Tensor:
    """S as a matrix [k, d]: what it makes of the unit vectors."""
    return sketch(torch.eye(sketch.d)).T


@pytest.mark.parametrize(("d", "k"), [(1, 1), (10, 10), (10, 3), (64, 7), (65, 64), (200, 1)])
def test_it_is_a_count_sketch(d: int, k: int) -> None:
    S = dense(CountSketch(d, k, seed=5))
    assert S.shape == (k, d)
    assert torch.equal(S.abs().sum(dim=0), torch.ones(d))  # one bucket a coordinate, with a sign
    load = S.abs().sum(dim=1)
    assert load.max() <= math.ceil(d / k)  # a block meets each bucket once


def test_it_is_linear() -> None:
    h = [rows(3, 1000, seed) for seed in range(5)]
    S = CountSketch(1000, 70, seed=2)
    mean_of_sketches = torch.stack([S(each) for each in h]).mean(dim=0)
    torch.testing.assert_close(S(torch.stack(h).mean(dim=0)), mean_of_sketches, rtol=1e-12, atol=1e-12)
    matrix = dense(S).double()
    torch.testing.assert_close(S(h[0]), h[0] @ matrix.T, rtol=1e-12, atol=1e-12)


def test_coordinates_of_different_blocks_meet_as_often_as_with_independent_buckets() -> None:
    d, k, seeds = 33, 5, 3000  # seven blocks, the last one short
    meet = torch.zeros(d, d)
    for seed in range(seeds):
        S = dense(CountSketch(d, k, seed)).abs()
        meet += S.T @ S
    block = torch.arange(d) // k
    same = block[:, None] == block[None]
    assert torch.equal(meet[same], (torch.eye(d) * seeds)[same])
    sigma = math.sqrt(1 / k * (1 - 1 / k) / seeds)
    assert ((meet[~same] / seeds - 1 / k).abs() < 4.8 * sigma).all()


def test_it_keeps_inner_products_on_average() -> None:
    h = rows(3, 400)
    draws = torch.stack([S @ S.T for seed in range(1000) for S in [CountSketch(400, 50, seed)(h)]])
    sigma = draws.std(dim=0) / math.sqrt(len(draws))
    assert ((draws.mean(dim=0) - h @ h.T).abs() < 4.5 * sigma).all()


def test_its_variance_keeps_the_bound() -> None:
    u, v = rows(2, 400)
    for k in (20, 100):
        draws = torch.stack(
            [S[0] @ S[1] for seed in range(1000) for S in [CountSketch(400, k, seed)(torch.stack([u, v]))]]
        )
        bound = ((u @ u) * (v @ v) + (u @ v) ** 2) / k
        assert draws.var() < 1.15 * bound


def test_its_error_falls_as_one_over_root_k() -> None:
    h = rows(2, 2**15)
    G = h @ h.T
    ks = [2**6, 2**8, 2**10, 2**12]
    errors = [
        np.mean([(S @ S.T - G).norm() for seed in range(40) for S in [CountSketch(h.shape[1], k, seed)(h)]]) for k in ks
    ]
    slope = np.polyfit(np.log(ks), np.log(errors), 1)[0]
    assert -0.62 < slope < -0.42


def test_a_sketch_of_full_length_loses_nothing() -> None:
    h = rows(3, 500)
    S = CountSketch(500, 500, seed=1)(h)
    torch.testing.assert_close(S @ S.T, h @ h.T, rtol=1e-12, atol=1e-12)


def test_the_same_seed_gives_the_same_bits_whatever_the_threads() -> None:
    h = rows(3, 300_000).float()
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 4):
            torch.set_num_threads(threads)
            results.append([CountSketch(300_000, k, seed=9)(h) for k in (1000, 150_000)])
        for one, four in zip(*results, strict=True):
            assert torch.equal(one, four)
    finally:
        torch.set_num_threads(before)


def test_signs_and_buckets_are_those_of_every_platform() -> None:
    assert shared_words(7, 2).tolist() == [11530976094092348043, 16550673365885938325]
    S = dense(CountSketch(12, 5, seed=3))
    bucket = S.abs().argmax(dim=0)
    assert [int(S[b, j]) * (int(b) + 1) for j, b in enumerate(bucket)] == [1, 2, 3, 4, 5, -5, -1, -2, 3, 4, -2, -3]


@pytest.mark.parametrize("k", [0, 11])
def test_a_length_that_makes_no_sense_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be from 1 to d = 10, but got {k}"):
        CountSketch(10, k, seed=0)
