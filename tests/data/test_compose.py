"""Compositions against the same done by torch and Pillow."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from fedcmoo.data.compose import Images, blend, inset, overlay, pairing

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(256, size=(5, 28, 28), dtype=np.uint8)
ARTICLES = RNG.integers(256, size=(4, 28, 28), dtype=np.uint8)
PICTURES = RNG.integers(256, size=(3, 3, 32, 32), dtype=np.uint8)


@pytest.mark.parametrize(("canvas", "offset"), [(36, 6), (42, 14)])
def test_overlay_like_torch(canvas: int, offset: int) -> None:
    i, j = np.array([4, 0]), np.array([1, 3])
    result = overlay(DIGITS, ARTICLES, i, j, canvas, offset)
    assert result.shape == (2, 1, 28, 28)
    assert result.dtype == np.uint8
    for pair in range(2):
        whole = np.zeros((1, 1, canvas, canvas), np.float32)
        whole[0, 0, :28, :28] = DIGITS[i[pair]]
        lower = whole[0, 0, offset : offset + 28, offset : offset + 28]
        lower[:] = np.maximum(lower, ARTICLES[j[pair]])
        resized = torch.nn.functional.interpolate(torch.from_numpy(whole), size=(28, 28), mode="nearest")
        np.testing.assert_array_equal(result[pair], resized[0])


def test_inset_like_torch_and_pillow() -> None:
    i, j = np.array([2, 2, 0]), np.array([4, 1, 0])
    result = inset(PICTURES, DIGITS, i, j)
    assert result.shape == (3, 3, 32, 32)
    for pair in range(3):
        cropped = torch.from_numpy(DIGITS[j[pair], 2:26, 2:26]).float()[None, None]
        digit = torch.nn.functional.interpolate(cropped, size=(16, 16), mode="nearest")[0, 0].byte()
        layer = Image.new("L", (32, 32))
        layer.paste(Image.fromarray(digit.numpy()), (8, 8))
        expected = np.maximum(PICTURES[i[pair]], np.asarray(layer)[None])
        np.testing.assert_array_equal(result[pair], expected)


def test_blend_like_pillow() -> None:
    digits = DIGITS * (DIGITS > 100)  # with black parts, where the picture stays
    i, j = np.array([2, 2, 0]), np.array([4, 1, 0])
    result = blend(PICTURES, digits, i, j)
    for pair in range(3):
        digit = Image.fromarray(digits[j[pair]])
        opacity = digit.point(lambda value: 156 * (value > 0))
        for channel in range(3):
            picture = Image.fromarray(PICTURES[i[pair], channel])
            picture.paste(digit, (2, 2), opacity)
            np.testing.assert_array_equal(result[pair, channel], np.asarray(picture))


@pytest.mark.parametrize("compose", [inset, blend])
def test_pictures_are_left_alone(compose: Callable[..., Images]) -> None:
    before = PICTURES.copy()
    compose(PICTURES, DIGITS, np.arange(3), np.arange(3))
    np.testing.assert_array_equal(PICTURES, before)


def test_pairing_uses_every_image_before_any_twice() -> None:
    i, j = pairing(10, 25, 25, np.random.default_rng(1))
    assert sorted(i[:10]) == list(range(10))
    assert sorted(i[10:20]) == list(range(10))
    assert sorted(j) == list(range(25))
    again = pairing(10, 25, 25, np.random.default_rng(1))
    np.testing.assert_array_equal(i, again[0])
    np.testing.assert_array_equal(j, again[1])


def test_sixty_thousand_pairs_take_seconds_not_minutes() -> None:
    digits = np.zeros((60_000, 28, 28), np.uint8)
    i, j = pairing(60_000, 60_000, 60_000, np.random.default_rng(0))
    start = time.process_time()
    overlay(digits, digits, i, j, 36, 6)
    assert time.process_time() - start < 10  # about half a second on an idle core
