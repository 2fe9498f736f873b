"""Codes that add up: the sum of codes decodes to the sum of vectors, without bias, and never wraps around."""

from __future__ import annotations

import math

import pytest
import torch

from fedcmoo.compression import SharedGrid


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vectors(n: int, d: int) -> torch.Tensor:
    """Norms up to 1, and very different sizes of entries: as if of a small and a large layer."""
    x = torch.randn(n, d, generator=random(9))
    x[:, d // 2 :] *= 20
    norm = torch.linspace(0.3, 1.0, n)[:, None]
    return torch.nn.functional.normalize(x) * norm


@pytest.mark.parametrize("d", [1, 50, 2048, 9000])
def test_the_sum_of_codes_modulo_the_modulus_decodes_to_the_sum(d: int) -> None:
    x = vectors(5, d)
    grid = SharedGrid(d, n=5, bound=1.0, seed=3, bits=20)
    codes = torch.stack([grid.encode(row, random(i)) for i, row in enumerate(x)])
    assert codes.min() >= 0
    assert codes.max() < grid.modulus
    back = grid.decode(codes.sum(dim=0) % grid.modulus)
    error = (back - x.sum(dim=0)).square().sum()
    assert error < 2 * 5 * 25 / (4 * grid.levels**2)


def test_masks_that_cancel_change_nothing() -> None:
    """What secure aggregation does: each client sees only masked codes leave it."""
    x, grid = vectors(2, 3000), SharedGrid(3000, n=2, bound=1.0, seed=3, bits=12)
    codes = [grid.encode(row, random(i)) for i, row in enumerate(x)]
    mask = torch.randint(grid.modulus, (3000,), generator=random(5))
    masked = (codes[0] + mask) % grid.modulus + (codes[1] - mask) % grid.modulus
    assert torch.equal(grid.decode(masked % grid.modulus), grid.decode(sum(codes, torch.tensor(0)) % grid.modulus))


def test_it_is_right_on_average_with_the_error_it_promises() -> None:
    x, d, draws = vectors(1, 3000)[0], 3000, 400
    directions = torch.randn(10, d, generator=random(7))
    grid = SharedGrid(d, n=10, bound=1.0, seed=0, bits=9)
    errors = torch.stack(
        [g.decode(g.encode(x, random(s))) - x for s in range(draws) for g in [SharedGrid(d, 10, 1.0, seed=s, bits=9)]]
    )
    z = (errors @ directions.T).mean(dim=0) / (errors @ directions.T).std(dim=0) * math.sqrt(draws)
    assert (z.abs() < 4).all()
    theory = 25 / (4 * grid.levels**2)
    assert 0.4 * theory < errors.square().sum(dim=1).mean() <= theory


def test_clients_that_agree_do_not_wrap_around() -> None:
    x = torch.zeros(5000)
    x[17] = 1.0
    grid = SharedGrid(5000, n=7, bound=1.0, seed=2, bits=10)
    total = torch.stack([grid.encode(x, random(i)) for i in range(7)]).sum(dim=0) % grid.modulus
    back = grid.decode(total)
    assert (back - 7 * x).norm() < 0.5 * 7


def test_entries_are_spread_over_all_blocks() -> None:
    """A vector that fills one corner has rotated entries of one size everywhere, so that none is cut off."""
    x = torch.zeros(50_000)
    x[-30:] = 1 / math.sqrt(30)
    grid = SharedGrid(50_000, n=1, bound=1.0, seed=2, bits=16)
    z = grid._rotate(x) * math.sqrt(50_000)
    spread = z[: 48 * 1000].view(48, 1000).square().mean(dim=1)
    assert spread.min() > 0.6
    assert spread.max() < 1.6
    assert z.abs().max() < 5


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"bits": 4, "n": 10}, "bits must be at least 5 for the sum of 10 clients, but got 4"),
        ({"bits": 40}, "bits must be from 1 to 32, but got 40"),
        ({"bound": 0.0}, "bound must be positive and finite, but got 0.0"),
    ],
)
def test_settings_are_checked(settings: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SharedGrid(**({"d": 10, "n": 2, "bound": 1.0, "seed": 0} | settings))  # type: ignore[arg-type]
