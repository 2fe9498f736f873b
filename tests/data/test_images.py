"""Image data: normalisation, targets, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedcmoo.data.base import Data
from fedcmoo.data.digits import MEAN, STD, load_digits, two_digits
from fedcmoo.data.images import ImageData

IMAGES = torch.randint(256, (6, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TARGETS = (torch.arange(6), torch.arange(12.0).reshape(6, 2))


def test_batch_is_normalised() -> None:
    mean, std = [0.1, 0.5, 0.9], [0.2, 0.3, 0.4]
    data = ImageData(IMAGES, TARGETS, mean, std)
    assert isinstance(data, Data)
    index = torch.tensor([5, 0, 5])
    inputs, targets = data.batch(index)
    for channel in range(3):
        expected = (IMAGES[index][:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(inputs[:, channel].double(), expected, atol=1e-6, rtol=1e-6)
    assert inputs.dtype == torch.float32
    assert targets[0].tolist() == [5, 0, 5]
    assert targets[1].tolist() == [[10, 11], [0, 1], [10, 11]]


@pytest.mark.parametrize(
    ("images", "targets", "mean", "std", "complaint"),
    [
        (IMAGES.float(), TARGETS, [0] * 3, [1] * 3, "must be uint8"),
        (IMAGES[0], TARGETS, [0] * 3, [1] * 3, r"\[N, C, H, W\]"),
        (IMAGES, TARGETS, [0], [1], "one number per channel"),
        (IMAGES, TARGETS, [0] * 3, [1, 0, 1], "std must be positive"),
        (IMAGES, (torch.arange(5),), [0] * 3, [1] * 3, "must have 6 entries"),
    ],
)
def test_refuses(
    images: torch.Tensor, targets: tuple[torch.Tensor, ...], mean: list[float], std: list[float], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        ImageData(images, targets, mean, std)


def ink(image: NDArray[np.uint8]) -> bytes:
    """The smallest box that holds all of an image's ink, with its size."""
    rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
    box = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return bytes(box.shape) + box.tobytes()


def test_two_digits_are_whole_digits_in_their_halves() -> None:
    digits, labels = load_digits()
    assert digits.shape == (1797, 12, 12)
    known = {ink(digit): label for digit, label in zip(digits, labels, strict=True)}
    train, _, _ = two_digits(300, 10, 10, seed=3)
    for half, target in zip((train.images[..., :14], train.images[..., 14:]), train.targets, strict=True):
        assert [known[ink(image[0])] for image in half.numpy()] == target.tolist()


def test_two_digits_parts_share_no_digit() -> None:
    shown = []
    for part in two_digits(1000, 1000, 1000, seed=0):
        halves = torch.cat([part.images[..., :14], part.images[..., 14:]])
        shown.append({ink(half[0]) for half in halves.numpy()})
    train, validation, test = shown
    assert not train & test
    assert not train & validation
    assert not validation & test


def test_two_digits_statistics_and_seed() -> None:
    train, validation, test = two_digits(5000, 100, 200, seed=0)
    assert [len(part) for part in (train, validation, test)] == [5000, 100, 200]
    assert train.images.shape[1:] == (1, 28, 28)
    pixels = train.images.double() / 255
    assert pixels.mean().item() == pytest.approx(MEAN, abs=0.004)
    assert pixels.std().item() == pytest.approx(STD, abs=0.004)
    assert set(train.targets[0].tolist()) == set(range(10))
    again, _, _ = two_digits(5000, 100, 200, seed=0)
    other, _, _ = two_digits(5000, 100, 200, seed=1)
    assert torch.equal(train.images, again.images)
    assert not torch.equal(train.images, other.images)
