"""Common parts of MultiMNIST, MNIST+FMNIST and CIFAR10+MNIST: pairs of images, composed and cached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedcmoo.data.cache import Arrays, cached
from fedcmoo.data.compose import Images, IntArray, pairing
from fedcmoo.data.folder import data_folder
from fedcmoo.data.images import ImageData
from fedcmoo.data.transforms import RandomRotation
from fedcmoo.experiments.images import Splits, TwoObjectives
from fedcmoo.problem import Transform
from fedcmoo.randomness import numpy_generator
from fedcmoo.validation import at_least_one, below_one

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images [n, ...] and their labels [n]."""

VERSION = 2
"""Version in the name of the cached files: increase it whenever the composition changes."""


@dataclass(frozen=True, kw_only=True)
class ComposedPairs(TwoObjectives):
    """Pairs of images of two data sets; objectives: the class of each.

    Args:
        train_pairs: the number of training pairs, before some are held out for validation.
        test_pairs: the number of test pairs, made from the data sets' test parts.
        rotation: training images are rotated by up to this many degrees in either direction.
        composition_seed: the seed that determines which images are paired.
        validation_share: share of the training pairs held out for validation.
    """

    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]

    train_pairs: int = 60_000
    test_pairs: int = 10_000
    rotation: float = 25.0
    composition_seed: int = 0
    validation_share: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(train_pairs=self.train_pairs, test_pairs=self.test_pairs)
        below_one(validation_share=self.validation_share)
        if not 0 <= self.rotation <= 180:
            raise ValueError(f"rotation must be in [0, 180], but got {self.rotation}")

    @abstractmethod
    def sources(self, folder: Path, train: bool) -> list[Path]:
        """The files from which the pairs are made."""

    @abstractmethod
    def load(self, folder: Path, train: bool) -> tuple[Labelled, Labelled]:
        """The images for the first and for the second member of the pairs."""

    @abstractmethod
    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The pairs (first[i], second[j]) as images [pairs, C, H, W]."""

    def composition(self) -> Mapping[str, str | int]:
        """The settings that change the result of `combine`."""
        return {}

    def splits(self, data: Path | None) -> Splits:
        """Training and test pairs. There is no validation part, so some training pairs are held out."""
        folder = data_folder(data)
        return Splits(self._part(folder, True), None, self._part(folder, False))

    def hold_out(self, samples: int, seed: int) -> tuple[IntArray, IntArray]:
        """A random share of the pairs. Images are first members only once, so the first images are new to the
        clients."""
        order = numpy_generator(seed, self.name, "validation").permutation(samples)
        cut = round(samples * self.validation_share)
        return order[cut:], order[:cut]

    def transform(self) -> Transform | None:
        """Random rotations."""
        return RandomRotation(self.rotation) if self.rotation else None

    def _part(self, folder: Path, train: bool) -> ImageData:
        part, pairs = ("train", self.train_pairs) if train else ("test", self.test_pairs)

        def make() -> Arrays:
            (x1, y1), (x2, y2) = self.load(folder, train)
            rng = numpy_generator(self.composition_seed, self.name, part)
            i, j = pairing(len(x1), len(x2), pairs, rng)
            return {"images": self.combine(x1, x2, i, j), "targets": np.stack([y1[i], y2[j]])}

        settings = {"pairs": pairs, "seed": self.composition_seed, "version": VERSION, **self.composition()}
        arrays = cached(folder, f"{self.name}-{part}", settings, self.sources(folder, train), make)
        first, second = torch.from_numpy(arrays["targets"])
        return ImageData(torch.from_numpy(arrays["images"]), (first, second), self.mean, self.std)
