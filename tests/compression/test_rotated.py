"""The rotated code against its theory: published distortions, unbiasedness, and the best division of the bits."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor

from fedcmoo import FedAvg, fit
from fedcmoo.compression import Rotated
from fedcmoo.compression.allocation import Blocks
from fedcmoo.compression.normal_codes import CODES, LargestCode, ScalarCode
from fedcmoo.compression.rotation import Rotation, block_size, hadamard
from fedcmoo.engines import Local
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.messages import BadMessageError, Message


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def real_update() -> Tensor:
    """x - x_i of a LeNet after ten local steps on handwritten digits: [1, 34635]."""
    problem = TwoDigits(clients=2, train_pairs=300, validation_pairs=10, test_pairs=10).build(seed=0)
    trained = fit(problem, FedAvg(), 1, clients_per_round=1, engine=Local()).model
    pairs = zip(problem.model.parameters(), trained.parameters(), strict=True)
    return torch.cat([(before - after).detach().reshape(-1) for before, after in pairs])[None]


def decoded(x: Tensor, budget: int, seed: int, compressor: Rotated) -> Tensor:
    M, d = x.shape
    return compressor.decode(compressor.encode(x, budget, random(seed)), (M, d), budget, "client 0")


def budget_of(bits: float, d: int) -> int:
    """Enough for so many bits an entry and what comes with them."""
    return math.ceil(bits * d / 8) + 8 + 3 * math.ceil(d / 2048) + 1


@pytest.mark.parametrize("B", [1, 2, 8, 64, 2048])
def test_blocks_are_multiplied_by_the_hadamard_matrix(B: int) -> None:
    x = torch.randn(3, B, generator=random())
    expected = x.double() @ torch.from_numpy(scipy.linalg.hadamard(B)).double() / math.sqrt(B)
    torch.testing.assert_close(hadamard(x).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 3, 100, 2048, 2049, 5000])
def test_rotations_are_orthogonal(d: int) -> None:
    x, y = torch.randn(2, d, generator=random())
    R = Rotation(d, seed=4)
    torch.testing.assert_close(R.inverse(R(x)), x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(R(x) @ R(y), x @ y, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("support", [[0], [5, 6], [2047], [2047, 2990], [2999]])
def test_rotated_entries_are_normal_even_if_few_were_not_zero(support: list[int]) -> None:
    x = torch.zeros(3000)
    x[support] = 1.0
    z = torch.stack([Rotation(3000, seed)(x) for seed in range(30)])
    for block in (z[:, :2048], z[:, 2048:]):
        norm = block.norm(dim=1, keepdim=True)
        kept = norm[:, 0] > 1e-6  # a block that the support does not reach stays zero
        if kept.any():
            unit = (block / norm * math.sqrt(block.shape[1]))[kept].reshape(-1).numpy()
            assert abs(scipy.stats.kurtosis(unit)) < 0.2


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, before = torch.randn(2, 300_000, generator=random()), torch.get_num_threads()
    codes = []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            codes.append(Rotated().encode(x, 100_000, random(3))["code"])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*codes)


def test_the_scalar_quantizer_has_the_published_distortion() -> None:
    published = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}  # Max 1960, table 1
    z = torch.randn(50, 20_000, generator=random()).numpy()
    for bits, distortion in published.items():
        code = ScalarCode(bits)
        assert code.error == pytest.approx(distortion / (1 - distortion), rel=2e-3)
        assert np.square(code.decode(code.encode(z)[0]) - z).mean() == pytest.approx(distortion, rel=0.02)


@pytest.mark.parametrize("g", [4, 16, 256])
def test_the_largest_of_a_group_has_the_error_it_promises(g: int) -> None:
    z, code = torch.randn(100, 2**14, generator=random()).numpy(), LargestCode(g)
    codewords, product = code.encode(z)
    q = code.decode(codewords)
    assert (np.abs(q.reshape(-1, g)).sum(axis=1) == 1).all()
    assert product == pytest.approx((z * q).sum(axis=1), rel=1e-4)
    q *= np.square(z).sum() / (z * q).sum()
    assert np.square(q - z).sum() / np.square(z).sum() == pytest.approx(code.error, rel=0.03)
    assert code.error < 0.82 * (math.pi / 2 * g / code.bits - 1)  # that of the signs of a random subset


def test_each_further_bit_lowers_the_error_by_less() -> None:
    rate, error = [code.bits / code.entries for code in CODES], [code.error for code in CODES]
    slope = -np.diff(error) / np.diff(rate)
    assert (np.diff(slope) < 0).all()
    assert (slope > 0).all()


@pytest.mark.parametrize(("bits", "theory"), [(1, 0.571), (2, 0.133), (3, 0.036), (4, 0.0096)])
def test_a_real_update_has_the_error_of_the_theory(bits: int, theory: float) -> None:
    x = real_update()
    budget = budget_of(bits, x.shape[1])

    def error(compressor: Rotated) -> float:
        draws = [(decoded(x, budget, seed, compressor) - x).square().sum() for seed in range(8)]
        return float(torch.stack(draws).mean() / x.square().sum())

    assert error(Rotated(adaptive=False)) == pytest.approx(theory, rel=0.05)
    assert error(Rotated()) < 0.8 * theory


@pytest.mark.parametrize("bits", [0.1, 1.0])
def test_a_real_update_is_right_on_average(bits: float) -> None:
    """Of 1,000 draws, every entry's mean error within what chance allows, and so the error along the update."""
    x, n = real_update()[:, -5000:], 1000
    d = x.shape[1]
    total, square, along = torch.zeros(d), torch.zeros(d), []
    for seed in range(n):
        error = (decoded(x, budget_of(bits, d), seed, Rotated()) - x)[0]
        total += error
        square += error.square()
        along.append(float(error @ x[0]))
    z = total / n / (square / n - (total / n).square()).sqrt() * math.sqrt(n)
    assert z.abs().max() < scipy.stats.norm.isf(1e-3 / 2 / d)
    assert z.square().mean().item() == pytest.approx(1, abs=4 * math.sqrt(2 / d))
    assert abs(np.mean(along)) < 4 * np.std(along) / math.sqrt(n)


def test_the_error_falls_with_every_byte_worth_having() -> None:
    x = real_update()
    d = x.shape[1]
    errors = [
        (decoded(x, budget_of(bits, d), 1, Rotated()) - x).norm() for bits in (0.02, 0.05, 0.1, 0.3, 0.6, 1, 2, 4, 8)
    ]
    assert all(later < 0.85 * earlier for earlier, later in itertools.pairwise(errors))


def test_bits_are_divided_nearly_as_well_as_can_be() -> None:
    """Against all divisions of four blocks."""
    energy = np.array([1.0, 30.0, 0.2, 4.0])
    blocks = Blocks(3 * 64 + 20, 64)
    error, each = [code.error for code in CODES], range(blocks.lowest, len(CODES))
    for budget in (25, 70, 150):
        levels = blocks.allocate(energy, budget)
        assert blocks.used(levels) <= budget
        best = min(
            sum(e * error[level] for e, level in zip(energy, choice, strict=True))
            for choice in itertools.product(each, repeat=4)
            if choice[2] <= choice[0] <= choice[1] and blocks.used(np.array(choice, np.uint8)) <= budget
        )
        assert sum(energy * np.array(error)[levels]) < 1.1 * best


@pytest.mark.parametrize("d", [1, 7, 100, 2047, 2048, 2051, 10_000])
def test_every_size_and_budget_works_and_none_is_exceeded(d: int) -> None:
    x = torch.randn(2, d, generator=random()) * torch.tensor([[1e-12], [1e12]])
    least = Rotated().least((2, d))
    for budget in (least, least + 1, 2 * least, 4 * least, 100 * least):
        payload = Rotated().encode(x, budget, random())
        assert payload.nbytes <= budget
        back = Rotated().decode(payload, (2, d), budget, "client 0")
        along = (back * x).sum(dim=1) / x.square().sum(dim=1)
        assert ((along - 1).abs() < 0.01).all()  # <x, x'> = ||x||², but for the rounding of scales


def test_bad_bytes_are_refused() -> None:
    d = 5000
    budget = 1000
    payload = Rotated().encode(torch.randn(1, d, generator=random()), budget, random())
    n = math.ceil(d / block_size(d))

    def spoiled(place: int, value: int) -> Message:
        code = payload["code"].clone()
        code[0, place] = value
        return Message(code=code)

    for place, value, complaint in [
        (7, 255, "seed that is not negative"),
        (9, 255, "finite scales that are not negative"),
        (8 + 2 * n, 200, "codes from 0 to 16, but they are from .* to 200"),
        (8 + 2 * n, 16, "codewords of at most 983 bytes"),
    ]:
        with pytest.raises(BadMessageError, match=f"client 7: 'code' must .*{complaint}"):
            Rotated().decode(spoiled(place, value), (1, d), budget, "client 7")
