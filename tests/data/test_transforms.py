"""Rotation of batches against torch's own resampling, and its use of randomness."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedcmoo.data.transforms import RandomRotation, rotate


def images(*shape: int) -> Tensor:
    # Never 0, which is the value of grid_sample's margin.
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 1


@pytest.mark.parametrize("shape", [(16, 1, 28, 28), (16, 3, 32, 32)])
def test_rotation_like_grid_sample(shape: tuple[int, ...]) -> None:
    batch = images(*shape)
    angles = torch.linspace(-0.43, 0.43, shape[0])
    zero = torch.zeros_like(angles)
    # affine_grid maps places of the result to places of the source, with y downwards.
    turn = torch.stack([angles.cos(), -angles.sin(), zero, angles.sin(), angles.cos(), zero], dim=1).view(-1, 2, 3)
    grid = affine_grid(turn, list(shape), align_corners=False)
    expected = grid_sample(batch, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    result = rotate(batch, angles, [0.0])
    # Places that fall on the border between two pixels may be rounded either way.
    assert (result == expected).double().mean() > 0.999


def test_quarter_turns_are_exact() -> None:
    batch = images(4, 2, 8, 8)
    turned = rotate(batch, torch.full((4,), math.pi / 2), [0.0])
    assert torch.equal(turned, torch.rot90(batch, 1, dims=(2, 3)))


def test_fill_per_channel() -> None:
    turned = rotate(images(1, 2, 9, 9), torch.tensor([math.pi / 4]), [-3.0, -5.0])
    assert turned[0, 0, 0, 0] == -3
    assert turned[0, 1, 0, 0] == -5


def test_randomness_is_the_generators() -> None:
    batch = images(32, 1, 28, 28)
    rotation = RandomRotation(25, fill=-0.4)
    state = torch.random.get_rng_state()
    first = rotation(batch, torch.Generator().manual_seed(5))
    again = pickle.loads(pickle.dumps(rotation))(batch, torch.Generator().manual_seed(5))
    other = rotation(batch, torch.Generator().manual_seed(6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)
    same = rotation(batch[:1].expand(32, -1, -1, -1), torch.Generator())
    assert len(torch.unique(same, dim=0)) > 20


def test_angles_stay_within_bounds() -> None:
    # One bright pixel far from the centre shows the angle.
    batch = torch.zeros(500, 1, 101, 101)
    batch[:, :, 50, 100] = 1
    turned = RandomRotation(25)(batch, torch.Generator().manual_seed(0))
    places = turned[:, 0].nonzero()
    angle = torch.atan2(50.0 - places[:, 1], places[:, 2] - 50.0) * 180 / math.pi
    assert angle.abs().max() < 26
    assert angle.max() > 23
    assert angle.min() < -23


@pytest.mark.parametrize("degrees", [-1, 181])
def test_refuses(degrees: float) -> None:
    with pytest.raises(ValueError, match=r"degrees must be in \[0, 180\]"):
        RandomRotation(degrees)
