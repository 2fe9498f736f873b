"""CIFAR10+MNIST: an MNIST digit in the middle of a CIFAR-10 picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn

from fedcmoo.data.cifar import cifar10_source, load_cifar10
from fedcmoo.data.compose import Images, IntArray, inset
from fedcmoo.data.idx import idx_files, load_idx_pair
from fedcmoo.experiments.pairs import ComposedPairs, Labelled
from fedcmoo.models.cnn import CNN


@dataclass(frozen=True, kw_only=True)
class CIFAR10MNIST(ComposedPairs):
    """A CIFAR-10 picture with a white MNIST digit in its middle; objectives: the picture's class and the digit.

    The model is a convolutional network of 1,726,508 parameters. The normalisation is CIFAR-10's own.
    """

    name: ClassVar[str] = "cifar10-mnist"
    title: ClassVar[str] = "an MNIST digit in the middle of a CIFAR-10 picture"
    objective_names: ClassVar[tuple[str, str]] = ("picture", "digit")
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)

    train_pairs: int = 50_000

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
        """The digit, 16x16 pixels large, in the middle of the picture."""
        return inset(first, second, i, j)

    def model(self) -> nn.Module:
        """The convolutional network."""
        return CNN()
