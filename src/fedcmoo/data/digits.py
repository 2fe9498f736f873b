"""Pairs of scikit-learn's handwritten digits: a two-objective image problem without downloads.

scikit-learn includes 1,797 digits of 8x8 pixels (the test part of the UCI "Optical Recognition of Handwritten
Digits"). Digits are enlarged to 12x12, and two of them are placed side by side on a 28x28 canvas, each at a random
position within its half.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcmoo.data.images import ImageData

CANVAS = 28
SIZE = 12
ROWS = (6, 10)
"""The range of a digit's top row (both ends included)."""
COLUMNS = ((0, 2), (14, 16))
"""The leftmost column of the left and of the right digit: within its own half, so the digits never overlap."""
MEAN, STD = 0.1121, 0.2444
"""Mean and standard deviation of the composed images, in [0, 1]."""


def load_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's digits, enlarged: images [1797, 12, 12] and labels [1797]."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    small = torch.from_numpy(images).float().reshape(-1, 1, 8, 8) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return large[:, 0].round().to(torch.uint8).numpy(), labels.astype(np.int64)


def side_by_side(
    digits: NDArray[np.uint8], labels: NDArray[np.int64], pairs: int, rng: np.random.Generator
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Random pairs of `digits` [n, 12, 12]: images [pairs, 1, 28, 28], labels of the left and the right digit."""
    canvas = np.zeros((pairs, 1, CANVAS, CANVAS), dtype=np.uint8)
    sample = np.arange(pairs)[:, None, None]
    span = np.arange(SIZE)
    targets = []
    for columns in COLUMNS:
        chosen = rng.integers(len(digits), size=pairs)
        row = rng.integers(ROWS[0], ROWS[1] + 1, size=(pairs, 1, 1)) + span[:, None]
        column = rng.integers(columns[0], columns[1] + 1, size=(pairs, 1, 1)) + span
        canvas[sample, 0, row, column] = digits[chosen]
        targets.append(torch.from_numpy(labels[chosen]))
    return torch.from_numpy(canvas), (targets[0], targets[1])


def two_digits(train: int, validation: int, test: int, seed: int) -> tuple[ImageData, ImageData, ImageData]:
    """Given numbers of training, validation and test pairs. The parts use disjoint digits: 70, 10 and 20 % of them."""
    digits, labels = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits))
    cuts = [7 * len(digits) // 10, 8 * len(digits) // 10]
    parts = []
    for chosen, pairs in zip(np.split(order, cuts), (train, validation, test), strict=True):
        images, targets = side_by_side(digits[chosen], labels[chosen], pairs, rng)
        parts.append(ImageData(images, targets, mean=[MEAN], std=[STD]))
    return parts[0], parts[1], parts[2]
