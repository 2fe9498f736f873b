"""Compositions against the same done pixel by pixel, and by Pillow."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PIL import Image

from fedcmoo.data.compose import inset, nearest, overlay, pairing

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(256, size=(5, 28, 28), dtype=np.uint8)
ARTICLES = RNG.integers(256, size=(4, 28, 28), dtype=np.uint8)
PICTURES = RNG.integers(256, size=(3, 3, 32, 32), dtype=np.uint8)


def test_overlay_pixel_by_pixel() -> None:
    i, j = np.array([4, 0]), np.array([1, 3])
    result = overlay(DIGITS, ARTICLES, i, j)
    assert result.shape == (2, 1, 28, 28)
    assert result.dtype == np.uint8
    for pair in range(2):
        canvas = [[0] * 36 for _ in range(36)]
        for row in range(28):
            for column in range(28):
                canvas[row][column] = int(DIGITS[i[pair], row, column])
        for row in range(28):
            for column in range(28):
                lower = int(ARTICLES[j[pair], row, column])
                canvas[row + 6][column + 6] = max(canvas[row + 6][column + 6], lower)
        for row in range(28):
            for column in range(28):
                centre = canvas[int((row + 0.5) * 36 / 28)][int((column + 0.5) * 36 / 28)]
                assert result[pair, 0, row, column] == centre


def test_overlay_like_pillow() -> None:
    everything = np.arange(4)
    result = overlay(DIGITS, ARTICLES, everything, everything)
    for pair in everything:
        canvas = np.zeros((36, 36), np.uint8)
        canvas[:28, :28] = DIGITS[pair]
        canvas[6:34, 6:34] = np.maximum(canvas[6:34, 6:34], ARTICLES[pair])
        resized = Image.fromarray(canvas).resize((28, 28), Image.Resampling.NEAREST)
        np.testing.assert_array_equal(result[pair, 0], np.asarray(resized))


def test_inset_like_pillow() -> None:
    i, j = np.array([2, 2, 0]), np.array([4, 1, 0])
    result = inset(PICTURES, DIGITS, i, j)
    assert result.shape == (3, 3, 32, 32)
    for pair in range(3):
        digit = Image.fromarray(DIGITS[j[pair]]).crop((2, 2, 26, 26)).resize((16, 16), Image.Resampling.NEAREST)
        layer = Image.new("L", (32, 32))
        layer.paste(digit, (8, 8))
        expected = np.maximum(PICTURES[i[pair]], np.asarray(layer)[None])
        np.testing.assert_array_equal(result[pair], expected)


def test_inset_leaves_the_pictures_alone() -> None:
    before = PICTURES.copy()
    inset(PICTURES, DIGITS, np.arange(3), np.arange(3))
    np.testing.assert_array_equal(PICTURES, before)


@pytest.mark.parametrize(("size", "new_size"), [(36, 28), (24, 16), (5, 5), (7, 20)])
def test_nearest_covers_the_centre(size: int, new_size: int) -> None:
    shown = nearest(size, new_size)
    np.testing.assert_array_equal(shown, np.floor((np.arange(new_size) + 0.5) * size / new_size))
    assert shown.min() >= 0
    assert shown.max() < size


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
    overlay(digits, digits, i, j)
    assert time.process_time() - start < 10  # about half a second on an idle core
