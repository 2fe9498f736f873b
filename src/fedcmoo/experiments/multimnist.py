"""MultiMNIST: two overlapping MNIST digits."""

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
class MultiMNIST(ComposedPairs):
    """Two MNIST digits on a 28x28 image, top left and bottom right; objectives: the left and the right digit.

    The model is the LeNet-like network (34,635 parameters).
    """

    name: ClassVar[str] = "multimnist"
    title: ClassVar[str] = "two overlapping MNIST digits on one image"
    objective_names: ClassVar[tuple[str, str]] = ("left", "right")
    mean: ClassVar[tuple[float, ...]] = (0.1307,)
    std: ClassVar[tuple[float, ...]] = (0.3081,)

    def sources(self, folder: Path, train: bool) -> list[Path]:
        """MNIST's images and labels."""
        return list(idx_files(folder, "mnist", train))

    def load(self, folder: Path, train: bool) -> tuple[Labelled, Labelled]:
        """MNIST, twice."""
        digits = load_idx_pair(*idx_files(folder, "mnist", train))
        return digits, digits

    def combine(self, first: Images, second: Images, i: IntArray, j: IntArray) -> Images:
        """The two overlap in 22x22 pixels of a 36x36 canvas, resized to 28x28."""
        return overlay(first, second, i, j, canvas=36, offset=6)

    def model(self) -> nn.Module:
        """The LeNet-like network."""
        return LeNet()
