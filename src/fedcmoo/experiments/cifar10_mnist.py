"""CIFAR10+MNIST: an MNIST digit in the middle of a CIFAR-10 picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import nn

from fedcmoo.data.cifar import cifar10_source, load_cifar10
from fedcmoo.data.compose import Images, IntArray, blend, inset
from fedcmoo.data.idx import idx_files, load_idx_pair
from fedcmoo.data.transforms import Chain, RandomFlip, RandomRotation
from fedcmoo.experiments.pairs import ComposedPairs, Labelled
from fedcmoo.models.cnn import CNN
from fedcmoo.problem import Transform


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
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2023, 0.1994, 0.2010)

    train_pairs: int = 50_000
    rotation: float = 30.0
    digit: Literal["blended", "cropped"] = "blended"
    flip: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.transform()  # which checks `flip`

    def sources(self, folder: Path, train: bool) -> list[Path]:
        """CIFAR-10's batches (or archive), and MNIST's images and labels."""
        source = cifar10_source(folder)
        batches = "data_batch_*" if train else "test_batch*"
        files = sorted(source.glob(batches)) if source.is_dir() else [source]
        return [*files, *idx_files(folder, "mnist", train)]

    def load(self, folder: Path, train: bool) -> tuple[Labelled, Labelled]:
        """CIFAR-10 and MNIST."""
        return load_cifar10(cifar10_source(folder), train), load_idx_pair(*idx_files(folder, "mnist", train))

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The digit in the middle of the picture: 28x28 pixels and half transparent, or 16x16 and opaque."""
        return {"blended": blend, "cropped": inset}[self.digit](first, second, i, j)

    def composition(self) -> Mapping[str, str | int]:
        """The setting that determines how the digit is inserted."""
        return {"digit": self.digit}

    def transform(self) -> Transform | None:
        """Random rotations, and flips of whole batches."""
        return Chain(RandomRotation(self.rotation, whole=True), RandomFlip(self.flip))

    def model(self) -> nn.Module:
        """The convolutional network."""
        return CNN()
