"""Images with two things in them: the paper's MultiMNIST, MNIST+FMNIST and CIFAR10+MNIST.

All are made for the whole data set at once, from whole-array operations, in about a second for 60,000 pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]
IntArray = NDArray[np.int64]

CANVAS = 36
"""Side of the canvas of two 28x28 images: one in the top left corner, one OFFSET further down and to the right."""
OFFSET = 6
CROP = 24
"""CIFAR10+MNIST: the digit's central CROP x CROP pixels are kept (MNIST's margin of two pixels is cut off) ..."""
DIGIT = 16
"""... made DIGIT x DIGIT pixels large, and put in the middle of the 32x32 picture: rows and columns 8 to 23."""


def nearest(size: int, new_size: int) -> IntArray:
    """For each of `new_size` pixels the index of the nearest of `size` pixels: the one that covers its centre.

    >>> nearest(36, 28)[:8].tolist()
    [0, 1, 3, 4, 5, 7, 8, 9]
    """
    return (2 * np.arange(new_size) + 1) * size // (2 * new_size)


def pairing(first: int, second: int, pairs: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Indices of the first and the second member of each pair, [pairs] each, out of `first` and `second` images.

    Each side goes through all its images in random order before any comes a second time. So with as many pairs
    as images, no image is the first member of two pairs, and held-out pairs show first images that no other
    pair shows.
    """
    return _order(first, pairs, rng), _order(second, pairs, rng)


def overlay(first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
    """Pairs overlaid: 36x36 canvas, offsets (0, 0) and (6, 6), pixel-wise maximum, nearest-neighbour resize to 28x28.

    The canvas is never built: a resized pixel shows one pixel of it, so each image gives the rows and columns
    it shows there.

    Args:
        first: images [n, 28, 28].
        second: images [m, 28, 28].
        i: of each pair the index in `first`, [pairs].
        j: of each pair the index in `second`, [pairs].

    Returns:
        images [pairs, 1, 28, 28].
    """
    side = first.shape[1]
    shown = nearest(CANVAS, side)
    result = np.zeros((len(i), 1, side, side), dtype=np.uint8)
    for images, chosen, offset in ((first, i, 0), (second, j, OFFSET)):
        inside = np.flatnonzero((shown >= offset) & (shown < offset + side))
        small = _pick(images, shown[inside] - offset)
        region = result[:, 0, inside[0] : inside[-1] + 1, inside[0] : inside[-1] + 1]
        np.maximum(region, small.take(chosen, axis=0), out=region)
    return result


def inset(pictures: Images, digits: Images, i: IntArray, j: IntArray) -> Images:
    """Pictures with a digit in the middle of all three channels, pixel-wise maximum.

    Args:
        pictures: [n, 3, 32, 32].
        digits: [m, 28, 28].
        i: of each pair the index in `pictures`, [pairs].
        j: of each pair the index in `digits`, [pairs].

    Returns:
        images [pairs, 3, 32, 32].
    """
    margin = (digits.shape[1] - CROP) // 2
    small = _pick(digits, margin + nearest(CROP, DIGIT))
    start = (pictures.shape[2] - DIGIT) // 2
    result = pictures.take(i, axis=0)
    middle = result[:, :, start : start + DIGIT, start : start + DIGIT]
    np.maximum(middle, small.take(j, axis=0)[:, None], out=middle)
    return result


def _pick(images: Images, lines: IntArray) -> Images:
    """The rows and columns `lines` of square images [n, s, s]; one flat `take` is the fastest way."""
    side = images.shape[1]
    pixels = (lines[:, None] * side + lines).ravel()
    picked: Images = images.reshape(len(images), -1).take(pixels, axis=1)
    return picked.reshape(-1, len(lines), len(lines))


def _order(images: int, count: int, rng: np.random.Generator) -> IntArray:
    passes = -(-count // images)
    return np.concatenate([rng.permutation(images) for _ in range(passes)])[:count]
