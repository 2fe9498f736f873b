"""Composed images of two objects: the paper's MultiMNIST, MNIST+FMNIST and CIFAR10+MNIST.

A whole data set is composed with whole-array operations, in about a second for 60,000 pairs.
"""

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.partition import IntArray

Images = NDArray[np.uint8]

CROP = 24
"""`inset`: the digit's central CROP x CROP pixels are kept (MNIST's margin of two pixels is cut off) ..."""
DIGIT = 16
"""... made DIGIT x DIGIT pixels large, and put in the middle of the 32x32 picture: rows and columns 8 to 23."""
OPACITY = 156
"""`blend`: the digit's share in a pixel, out of 255."""


def nearest(size: int, new_size: int) -> IntArray:
    """The source pixel (of `size`) of each of `new_size` pixels: floor(i * size / new_size), as torch's "nearest".

    >>> nearest(36, 28)[:8].tolist()
    [0, 1, 2, 3, 5, 6, 7, 9]
    """
    return np.arange(new_size) * size // new_size


def pairing(first: int, second: int, pairs: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Indices of the first and the second member of each pair, [pairs] each, out of `first` and `second` images.

    Each side uses all its images in random order before repeating any. So with as many pairs as images, no image is the
    first member of two pairs, and the first images of held-out pairs occur in no other pair.
    """
    return _order(first, pairs, rng), _order(second, pairs, rng)


def overlay(first: Images, second: Images, i: IntArray, j: IntArray, canvas: int, offset: int) -> Images:
    """Pairs overlaid on a larger canvas, pixel-wise maximum, then nearest-neighbour resize to the images' own size.

    The canvas is never built: each resized pixel copies one pixel of it, so only the required rows and columns of each
    image are taken.

    Args:
        first: images [n, s, s], in the canvas's top left corner.
        second: images [m, s, s], `offset` pixels further down and to the right.
        i: of each pair the index in `first`, [pairs].
        j: of each pair the index in `second`, [pairs].
        canvas: side of the canvas.
        offset: see `second`.

    Returns:
        images [pairs, 1, s, s].
    """
    side = first.shape[1]
    shown = nearest(canvas, side)
    result = np.zeros((len(i), 1, side, side), dtype=np.uint8)
    for images, chosen, start in ((first, i, 0), (second, j, offset)):
        inside = np.flatnonzero((shown >= start) & (shown < start + side))
        small = _pick(images, shown[inside] - start)
        region = result[:, 0, inside[0] : inside[-1] + 1, inside[0] : inside[-1] + 1]
        np.maximum(region, small.take(chosen, axis=0), out=region)
    return result


def inset(pictures: Images, digits: Images, i: IntArray, j: IntArray) -> Images:
    """Pictures with a cropped, smaller digit in the middle of all three channels, pixel-wise maximum.

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


def blend(pictures: Images, digits: Images, i: IntArray, j: IntArray) -> Images:
    """Pictures with a whole digit blended into the middle of all three channels, wherever the digit is not black.

    A pixel p under a pixel q > 0 of the digit becomes p + (q - p) * OPACITY / 255, rounded. Arguments and result are
    those of `inset`.
    """
    side = digits.shape[1]
    start = (pictures.shape[2] - side) // 2
    chosen = digits.take(j, axis=0)
    drawn, light = chosen > 0, chosen.astype(np.uint16) * OPACITY
    result = pictures.take(i, axis=0)
    for channel in range(result.shape[1]):
        middle = result[:, channel, start : start + side, start : start + side]
        mixed = (middle.astype(np.uint16) * (255 - OPACITY) + light + 127) // 255
        np.copyto(middle, mixed.astype(np.uint8), where=drawn)
    return result


def _pick(images: Images, lines: IntArray) -> Images:
    """The rows and columns `lines` of square images [n, s, s]; a single flat `take` is fastest."""
    side = images.shape[1]
    pixels = (lines[:, None] * side + lines).ravel()
    picked: Images = images.reshape(len(images), -1).take(pixels, axis=1)
    return picked.reshape(-1, len(lines), len(lines))


def _order(images: int, count: int, rng: np.random.Generator) -> IntArray:
    passes = -(-count // images)
    return np.concatenate([rng.permutation(images) for _ in range(passes)])[:count]
