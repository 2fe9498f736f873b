"""Common parts of the ready-made image problems: split the data, distribute it to clients, initialise the model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedcmoo.data.base import Data, Labelled, Subset
from fedcmoo.data.images import ImageData
from fedcmoo.data.partition import IntArray, Partition, by_label, composite, dirichlet, iid
from fedcmoo.data.skew import Skew, measure_skew
from fedcmoo.experiments.losses import Scaled, l2
from fedcmoo.problem import Objective, Problem, Transform, accuracy
from fedcmoo.randomness import numpy_generator, seeded
from fedcmoo.validation import at_least_one, check_literals, not_negative, positive


class Splits(NamedTuple):
    """The parts of a data set; `validation` is None if the data set has no validation part."""

    train: ImageData
    validation: Data | None
    test: ImageData


@dataclass(frozen=True, kw_only=True)
class ImageProblem(ABC):
    """Settings that all image problems share.

    Args:
        clients: the number of clients N.
        samples_per_client: the number of samples of each client; 0 for an equal share of the training samples.
        partition: "dirichlet" skews the clients' composite labels, "by-label" gives each client two shards of the
            samples sorted by them, "iid" skews nothing.
        alpha: concentration of the Dirichlet distribution; small is skewed.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    clients: int = 100
    samples_per_client: int = 0
    partition: Literal["dirichlet", "by-label", "iid"] = "dirichlet"
    alpha: float = 0.3

    def __post_init__(self) -> None:
        check_literals(self)
        at_least_one(clients=self.clients)
        not_negative(samples_per_client=self.samples_per_client)
        positive(alpha=self.alpha)
        if self.partition == "by-label" and self.samples_per_client:
            raise ValueError(
                "samples_per_client must be 0 where samples are distributed by label, in equal shards of all of them, "
                f"but got {self.samples_per_client}"
            )

    @abstractmethod
    def splits(self, data: Path | None) -> Splits:
        """Training, validation and test data."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A freshly initialised model."""

    @abstractmethod
    def objectives(self) -> list[Objective]:
        """The M objectives."""

    def transform(self) -> Transform | None:
        """The augmentation of training batches; none by default."""
        return None

    def labels(self, train: ImageData) -> IntArray:
        """The label of each training sample that the partition skews: the combination of its targets."""
        return composite([target.numpy() for target in train.targets])

    def hold_out(self, samples: int, seed: int) -> tuple[IntArray, IntArray]:
        """The clients' training samples, and those held out (none if there is a validation part)."""
        return np.arange(samples), np.arange(0)

    def federate(self, seed: int, data: Path | None = None) -> tuple[Splits, Partition]:
        """Split the data and distribute the training samples to the clients."""
        train, validation, test = self.splits(data)
        kept, held_out = self.hold_out(len(train), seed)
        if len(held_out):
            validation = Subset(train, torch.from_numpy(held_out))
        rng = numpy_generator(seed, self.name, "partition")
        share = self.samples_per_client or None
        if self.partition == "iid":
            parts = iid(len(kept), self.clients, rng, share)
        elif self.partition == "by-label":
            parts = by_label(self.labels(train)[kept], self.clients, rng)
        else:
            parts = dirichlet(self.labels(train)[kept], self.clients, self.alpha, rng, share)
        return Splits(train, validation, test), parts.of(kept, len(train))

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The label skew over clients of `build` with the same arguments."""
        splits, partition = self.federate(seed, data)
        targets = zip(self.objectives(), splits.train.targets, strict=True)
        return measure_skew(partition, {objective.name: target.numpy() for objective, target in targets})

    def owns(self, seed: int) -> list[list[str]] | None:
        """The names of the objectives that each client owns; None if all own all."""
        return None

    def client_data(self, train: ImageData, partition: Partition, seed: int) -> list[Data]:
        """Each client's samples."""
        return [Subset(train, torch.from_numpy(index)) for index in partition.indices]

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem with its data; the seed determines validation split, partition and initial model."""
        (train, validation, test), partition = self.federate(seed, data)
        with seeded(torch.device("cpu"), seed, self.name, "model"):
            model = self.model()
        return Problem(
            model,
            self.objectives(),
            clients=self.client_data(train, partition, seed),
            test=test,
            validation=validation,
            owns=self.owns(seed),
            transform=self.transform(),
            name=self.name,
        )


@dataclass(frozen=True, kw_only=True)
class TwoObjectives(ImageProblem):
    """A problem of two classifications, one per part of the image.

    Args:
        first_loss: "nll" (negative log-likelihood), or "l2" for the paper's Table 2.
        first_scale: a factor of the first objective's loss.
        label_sets: "full", or "partial": half of the clients have labels of the first objective only, 30 % of the
            second only and 20 % of both.
    """

    objective_names: ClassVar[tuple[str, str]]

    first_loss: Literal["nll", "l2"] = "nll"
    first_scale: float = 1.0
    label_sets: Literal["full", "partial"] = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(first_scale=self.first_scale)

    def owns(self, seed: int) -> list[list[str]] | None:
        """The label sets, which are drawn by the seed."""
        if self.label_sets == "full":
            return None
        first, second = self.objective_names
        places = numpy_generator(seed, self.name, "label sets").permutation(self.clients) / self.clients
        return [[first] if p < 0.5 else [second] if p < 0.8 else [first, second] for p in places.tolist()]

    def client_data(self, train: ImageData, partition: Partition, seed: int) -> list[Data]:
        """Each client's samples, with the targets it owns."""
        samples, owns = super().client_data(train, partition, seed), self.owns(seed)
        if owns is None:
            return samples
        return [
            Labelled(data, tuple(name in owned for name in self.objective_names))
            for data, owned in zip(samples, owns, strict=True)
        ]

    def objectives(self) -> list[Objective]:
        first, second = self.objective_names
        first_loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy if self.first_loss == "nll" else l2
        return [
            Objective(first, Scaled(first_loss, self.first_scale), metrics=[accuracy]),
            Objective(second, cross_entropy, metrics=[accuracy]),
        ]
