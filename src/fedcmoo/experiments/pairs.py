"""Pairs of images, composed and cached: MultiMNIST, MNIST+FMNIST and CIFAR10+MNIST."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from fedcmoo.data.cache import Arrays, cached
from fedcmoo.data.cifar import cifar10_source, load_cifar10
from fedcmoo.data.compose import Images, blend, inset, overlay, pairing
from fedcmoo.data.folder import data_folder
from fedcmoo.data.idx import idx_files, load_idx_pair
from fedcmoo.data.images import ImageData
from fedcmoo.data.partition import IntArray
from fedcmoo.data.transforms import Chain, RandomFlip, RandomRotation
from fedcmoo.experiments.images import Splits, TwoObjectives
from fedcmoo.models.images import CNN, LeNet
from fedcmoo.problem import Transform
from fedcmoo.randomness import numpy_generator
from fedcmoo.validation import at_least_one, below_one

VERSION = 2
"""Version in the name of the cached files: increase it whenever the composition changes."""


def source_files(folder: Path, data_set: str, train: bool) -> list[Path]:
    """The files of the training or test part of "mnist", "fashion-mnist" or "cifar10"."""
    if data_set != "cifar10":
        return list(idx_files(folder, data_set, train))
    source = cifar10_source(folder)
    return sorted(source.glob("data_batch_*" if train else "test_batch*")) if source.is_dir() else [source]


def load(folder: Path, data_set: str, train: bool) -> tuple[Images, IntArray]:
    """Images [n, ...] and labels [n] of the training or test part of "mnist", "fashion-mnist" or "cifar10"."""
    if data_set == "cifar10":
        return load_cifar10(cifar10_source(folder), train)
    return load_idx_pair(*idx_files(folder, data_set, train))


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

    data_sets: ClassVar[tuple[str, str]]
    """Those of the first and of the second member of the pairs."""
    mean: ClassVar[tuple[float, ...]] = (0.1307,)
    std: ClassVar[tuple[float, ...]] = (0.3081,)

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
        return RandomRotation(self.rotation) if self.rotation else None

    def model(self) -> nn.Module:
        return LeNet()

    def _part(self, folder: Path, train: bool) -> ImageData:
        part, pairs = ("train", self.train_pairs) if train else ("test", self.test_pairs)

        def make() -> Arrays:
            (x1, y1), (x2, y2) = (load(folder, name, train) for name in self.data_sets)
            rng = numpy_generator(self.composition_seed, self.name, part)
            i, j = pairing(len(x1), len(x2), pairs, rng)
            return {"images": self.combine(x1, x2, i, j), "targets": np.stack([y1[i], y2[j]])}

        settings = {"pairs": pairs, "seed": self.composition_seed, "version": VERSION, **self.composition()}
        sources = [file for name in dict.fromkeys(self.data_sets) for file in source_files(folder, name, train)]
        arrays = cached(folder, f"{self.name}-{part}", settings, sources, make)
        first, second = torch.from_numpy(arrays["targets"])
        return ImageData(torch.from_numpy(arrays["images"]), (first, second), self.mean, self.std)


@dataclass(frozen=True, kw_only=True)
class MultiMNIST(ComposedPairs):
    """Two MNIST digits on a 28x28 image, top left and bottom right; objectives: the left and the right digit.

    The model is the LeNet-like network (34,635 parameters).
    """

    name: ClassVar[str] = "multimnist"
    title: ClassVar[str] = "two overlapping MNIST digits on one image"
    objective_names: ClassVar[tuple[str, str]] = ("left", "right")
    data_sets: ClassVar[tuple[str, str]] = ("mnist", "mnist")

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The two overlap in 22x22 pixels of a 36x36 canvas, resized to 28x28."""
        return overlay(first, second, i, j, canvas=36, offset=6)


@dataclass(frozen=True, kw_only=True)
class MNISTFMNIST(ComposedPairs):
    """An MNIST digit (top left) and a FashionMNIST article (bottom right); objectives: the digit and the article.

    The model is the LeNet-like network (34,635 parameters).
    """

    name: ClassVar[str] = "mnist-fmnist"
    title: ClassVar[str] = "an MNIST digit and a FashionMNIST article on one image"
    objective_names: ClassVar[tuple[str, str]] = ("digit", "article")
    data_sets: ClassVar[tuple[str, str]] = ("mnist", "fashion-mnist")

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The two overlap in 14x14 pixels of a 42x42 canvas, resized to 28x28, as in the authors' runs."""
        return overlay(first, second, i, j, canvas=42, offset=14)


@dataclass(frozen=True, kw_only=True)
class CIFAR10MNIST(ComposedPairs):
    """A CIFAR-10 picture with an MNIST digit in its middle; objectives: the picture's class and the digit.

    The model is a convolutional network of 1,726,508 parameters. As in the authors' runs, the normalisation divides by
    the mean over images of each image's standard deviation.

    Args:
        digit: "blended" mixes the whole digit into the picture, as in the authors' runs; "cropped" inserts a smaller
            one, as described in the paper's text.
        rotation: training images are rotated by a whole number of degrees, at most this many in either direction.
        flip: probability with which a training batch is flipped left to right.
    """

    name: ClassVar[str] = "cifar10-mnist"
    title: ClassVar[str] = "an MNIST digit in the middle of a CIFAR-10 picture"
    objective_names: ClassVar[tuple[str, str]] = ("picture", "digit")
    data_sets: ClassVar[tuple[str, str]] = ("cifar10", "mnist")
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2023, 0.1994, 0.2010)

    train_pairs: int = 50_000
    rotation: float = 30.0
    digit: Literal["blended", "cropped"] = "blended"
    flip: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.transform()  # which checks `flip`

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The digit in the middle of the picture: 28x28 pixels and half transparent, or 16x16 and opaque."""
        return {"blended": blend, "cropped": inset}[self.digit](first, second, i, j)

    def composition(self) -> Mapping[str, str | int]:
        return {"digit": self.digit}

    def transform(self) -> Transform | None:
        return Chain(RandomRotation(self.rotation, whole=True), RandomFlip(self.flip))

    def model(self) -> nn.Module:
        return CNN()
