"""MNIST+FMNIST: an MNIST digit and a FashionMNIST article that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn

from fedcmoo.data.compose import Images, IntArray, overlay
from fedcmoo.data.idx import idx_files, load_idx_pair
from fedcmoo.experiments.pairs import ComposedPairs, Labelled
from fedcmoo.models.lenet import LeNet


@dataclass(frozen=True, kw_only=True)
class MNISTFMNIST(ComposedPairs):
    """An MNIST digit (top left) and a FashionMNIST article (bottom right); objectives: the digit and the article.

    The model is the LeNet-like network (34,635 parameters).
    """

    name: ClassVar[str] = "mnist-fmnist"
    title: ClassVar[str] = "an MNIST digit and a FashionMNIST article on one image"
    objective_names: ClassVar[tuple[str, str]] = ("digit", "article")
    mean: ClassVar[tuple[float, ...]] = (0.1307,)
    std: ClassVar[tuple[float, ...]] = (0.3081,)

    def sources(self, folder: Path, train: bool) -> list[Path]:
        """Images and labels of both data sets."""
        return [*idx_files(folder, "mnist", train), *idx_files(folder, "fashion-mnist", train)]

    def load(self, folder: Path, train: bool) -> tuple[Labelled, Labelled]:
        """MNIST and FashionMNIST."""
        return (
            load_idx_pair(*idx_files(folder, "mnist", train)),
            load_idx_pair(*idx_files(folder, "fashion-mnist", train)),
        )

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The two overlap in 14x14 pixels of a 42x42 canvas, resized to 28x28, as in the authors' runs."""
        return overlay(first, second, i, j, canvas=42, offset=14)

    def model(self) -> nn.Module:
        """The LeNet-like network."""
        return LeNet()
