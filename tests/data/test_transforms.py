"""Augmentations against Pillow, and their use of randomness."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from fedcmoo.data.transforms import Chain, RandomFlip, RandomRotation, rotate


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 1


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (3, 3, 20, 32)])
def test_rotation_like_pillow(shape: tuple[int, ...]) -> None:
    # Pillow pads nothing: it repeats the edge and cuts off sharply, so compare with a margin of zeros around.
    batch = images(*shape)
    angles = torch.linspace(-25, 25, shape[0])
    result = rotate(batch, angles * math.pi / 180)
    for turned, source, angle in zip(result, pad(batch, (20,) * 4), angles.tolist(), strict=True):
        for own, channel in zip(turned, source, strict=True):
            expected = Image.fromarray(channel.numpy()).rotate(angle, Image.Resampling.BILINEAR)
            torch.testing.assert_close(own, torch.from_numpy(np.array(expected))[20:-20, 20:-20], rtol=0, atol=2e-3)


def test_quarter_turns_are_exact() -> None:
    batch = images(4, 2, 8, 8)
    turned = rotate(batch, torch.full((4,), math.pi / 2))
    torch.testing.assert_close(turned, torch.rot90(batch, 1, dims=(2, 3)))


def test_zeros_come_in_from_outside() -> None:
    assert rotate(images(1, 2, 9, 9), torch.tensor([math.pi / 4]))[0, :, 0, 0].tolist() == [0, 0]


@pytest.mark.parametrize("transform", [RandomRotation(25), Chain(RandomRotation(30, whole=True), RandomFlip(0.4))])
def test_randomness_is_the_generators(transform: Callable[[Tensor, torch.Generator], Tensor]) -> None:
    batch = images(32, 1, 28, 28)
    state = torch.random.get_rng_state()
    first = transform(batch, torch.Generator().manual_seed(5))
    again = pickle.loads(pickle.dumps(transform))(batch, torch.Generator().manual_seed(5))
    other = transform(batch, torch.Generator().manual_seed(6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)
    same = transform(batch[:1].expand(32, -1, -1, -1), torch.Generator())
    assert len(torch.unique(same, dim=0)) > 20


def test_whole_degrees_are_drawn_evenly() -> None:
    batch = torch.zeros(2000, 1, 101, 101)
    batch[:, :, 50, 95:] = 1  # a bar far from the centre shows the angle
    turned = RandomRotation(2, whole=True)(batch, torch.Generator().manual_seed(0))
    kinds, counts = torch.unique(turned, dim=0, return_counts=True)
    assert len(kinds) == 5
    assert counts.min() > 300
    for degrees in range(-2, 3):
        expected = rotate(batch[:1], torch.tensor([math.radians(degrees)]))
        assert (kinds - expected).abs().amax(dim=(1, 2, 3)).min() < 1e-5


def test_flips_whole_batches_with_their_probability() -> None:
    batch = images(4, 1, 5, 5)
    random = torch.Generator().manual_seed(0)
    results = [RandomFlip(0.4)(batch, random) for _ in range(500)]
    flipped = sum(torch.equal(result, batch.flip(3)) for result in results)
    assert flipped + sum(torch.equal(result, batch) for result in results) == 500
    assert 160 < flipped < 240


def test_angles_stay_within_bounds() -> None:
    # The centre of mass of a bright spot far from the centre shows the angle.
    batch = torch.zeros(500, 1, 101, 101)
    batch[:, :, 50, 90] = 1
    turned = RandomRotation(25)(batch, torch.Generator().manual_seed(0))[:, 0]
    places = torch.arange(101.0) - 50
    y, x = ((turned.sum(dim) * places).sum(1) / turned.sum((1, 2)) for dim in (2, 1))
    angle = torch.atan2(-y, x) * 180 / math.pi
    assert 24 < angle.max() < 25.1
    assert -25.1 < angle.min() < -24


@pytest.mark.parametrize(
    ("transform", "value", "rule"),
    [(RandomRotation, -1, "degrees must be in"), (RandomRotation, 181, "degrees must be in"), (RandomFlip, 2, "prob")],
)
def test_refuses(transform: Callable[[float], object], value: float, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        transform(value)
