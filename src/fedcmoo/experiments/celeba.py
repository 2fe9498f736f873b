"""CelebA: forty attributes of a face as forty objectives, or in five groups of eight."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fedcmoo.data.celeba import ATTRIBUTES, PARTS, load_celeba
from fedcmoo.data.folder import data_folder
from fedcmoo.data.images import ImageData
from fedcmoo.data.partition import IntArray, composite
from fedcmoo.experiments.images import ImageProblem, Splits
from fedcmoo.experiments.losses import attribute_accuracy
from fedcmoo.models.images import ResNet18
from fedcmoo.problem import Metric, Objective, accuracy

SKEWED = ("Attractive", "Male", "Mouth_Slightly_Open")
"""The attributes whose eight combinations the partition skews."""

MEAN = (72.4, 82.9, 73.2)
"""The means of red, green and blue (0 to 255) that the authors' runs subtract."""

GROUPS = [
    names.split()
    for names in (
        "5_o_Clock_Shadow Blond_Hair Bags_Under_Eyes Eyeglasses Mustache Wavy_Hair Oval_Face Rosy_Cheeks",
        "Arched_Eyebrows Black_Hair Big_Nose Blurry Goatee Straight_Hair Pale_Skin Wearing_Earrings",
        "Attractive Brown_Hair Bushy_Eyebrows Double_Chin Mouth_Slightly_Open Receding_Hairline Wearing_Hat Young",
        "Bald Big_Lips Chubby Heavy_Makeup High_Cheekbones Male Sideburns Smiling",
        "Bangs Gray_Hair Narrow_Eyes No_Beard Pointy_Nose Wearing_Lipstick Wearing_Necklace Wearing_Necktie",
    )
]
"""The paper's five groups of eight attributes."""


@dataclass(frozen=True, kw_only=True)
class CelebAProblem(ImageProblem):
    """Base class of both CelebA problems: 32x32 faces with the official split, skewed by combinations of three
    attributes.

    `MEAN` is subtracted from the pixels, which are then divided by 255. The model is ResNet-18 with group normalisation
    (11.2 million parameters).
    """

    @abstractmethod
    def targets(self, attributes: Tensor) -> tuple[Tensor, ...]:
        """The objectives' targets from the attributes (0 or 1), uint8 [n, 40]."""

    @abstractmethod
    def attributes(self, train: ImageData) -> dict[str, IntArray]:
        """The attributes by name, 0 or 1, [n]."""

    def splits(self, data: Path | None) -> Splits:
        faces = load_celeba(data_folder(data))
        train, validation, test = (
            ImageData(
                torch.from_numpy(faces[part].images),
                self.targets(torch.from_numpy(faces[part].attributes)),
                mean=[value / 255 for value in MEAN],
                std=[1.0] * 3,
            )
            for part in PARTS
        )
        return Splits(train, validation, test)

    def labels(self, train: ImageData) -> IntArray:
        """The combination of the three skewed attributes: 0 to 7."""
        attributes = self.attributes(train)
        return composite([attributes[name] for name in SKEWED])


@dataclass(frozen=True, kw_only=True)
class CelebA(CelebAProblem):
    """Forty objectives, one per attribute: cross entropy of two logits."""

    name: ClassVar[str] = "celeba"
    title: ClassVar[str] = "forty attributes of a face, an objective each"

    def targets(self, attributes: Tensor) -> tuple[Tensor, ...]:
        return attributes.long().T.contiguous().unbind(0)

    def attributes(self, train: ImageData) -> dict[str, IntArray]:
        return {name: target.numpy() for name, target in zip(ATTRIBUTES, train.targets, strict=True)}

    def objectives(self) -> list[Objective]:
        return [Objective(name, cross_entropy, metrics=[accuracy]) for name in ATTRIBUTES]

    def model(self) -> nn.Module:
        return ResNet18(objectives=len(ATTRIBUTES), outputs=2)


@dataclass(frozen=True, kw_only=True)
class CelebA5(CelebAProblem):
    """Five objectives, one per group of eight attributes: binary cross entropy, the mean over the group."""

    name: ClassVar[str] = "celeba5"
    title: ClassVar[str] = "five groups of eight attributes of a face, an objective each"

    def targets(self, attributes: Tensor) -> tuple[Tensor, ...]:
        groups = [[ATTRIBUTES.index(name) for name in group] for group in GROUPS]
        return tuple(attributes[:, columns].float() for columns in groups)

    def attributes(self, train: ImageData) -> dict[str, IntArray]:
        return {
            name: target[:, column].long().numpy()
            for group, target in zip(GROUPS, train.targets, strict=True)
            for column, name in enumerate(group)
        }

    def objectives(self) -> list[Objective]:
        loss, right = binary_cross_entropy_with_logits, Metric("accuracy", attribute_accuracy)
        return [Objective(f"group {i}", loss, metrics=[right]) for i in range(1, len(GROUPS) + 1)]

    def model(self) -> nn.Module:
        return ResNet18(objectives=len(GROUPS), outputs=len(GROUPS[0]))
