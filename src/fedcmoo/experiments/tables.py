"""Common parts of the small tabular problems: hold out a test part, distribute the rest to clients."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedcmoo.data.base import Subset, TensorData
from fedcmoo.data.partition import IntArray, Partition, dirichlet
from fedcmoo.data.skew import Skew, measure_skew
from fedcmoo.problem import Objective, Problem
from fedcmoo.randomness import numpy_generator, seeded
from fedcmoo.validation import at_least_one, positive

TEST_SHARE = 0.25
"""Share of each label's samples that is held out for testing."""


class TableData(NamedTuple):
    """The samples of a tabular data set.

    Attributes:
        inputs: float32 [n, p].
        targets: the targets of each objective by name, [n, ...].
        labels: the label of each sample, int64 [n]; the test split is stratified by it, and the partition skews it.
    """

    inputs: Tensor
    targets: Mapping[str, Tensor]
    labels: IntArray


@dataclass(frozen=True, kw_only=True)
class TableProblem(ABC):
    """Settings shared by the tabular problems.

    Args:
        clients: the number of clients N.
        alpha: concentration of the Dirichlet distribution that skews the clients' labels; small is skewed.
        hidden: hidden units of the network.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    clients: int = 8
    alpha: float = 1.0
    hidden: int = 32

    def __post_init__(self) -> None:
        at_least_one(clients=self.clients, hidden=self.hidden)
        positive(alpha=self.alpha)

    @abstractmethod
    def table(self) -> TableData:
        """All samples."""

    @abstractmethod
    def objectives(self) -> list[Objective]:
        """The M objectives."""

    @abstractmethod
    def model(self, inputs: int) -> nn.Module:
        """A freshly initialised model for a given number of input features."""

    def partition(self, labels: IntArray, rng: np.random.Generator) -> Partition:
        """Distribute the training samples with these labels to the clients."""
        return dirichlet(labels, self.clients, self.alpha, rng)

    def federate(self, seed: int) -> tuple[TableData, IntArray, Partition]:
        """The table, its test samples, and the partition of the remaining samples."""
        table = self.table()
        rng = numpy_generator(seed, self.name, "split")
        of_label = [rng.permutation(np.flatnonzero(table.labels == label)) for label in np.unique(table.labels)]
        cuts = [round(TEST_SHARE * len(index)) for index in of_label]
        test = np.concatenate([index[:cut] for index, cut in zip(of_label, cuts, strict=True)])
        train = np.concatenate([index[cut:] for index, cut in zip(of_label, cuts, strict=True)])
        parts = self.partition(table.labels[train], numpy_generator(seed, self.name, "partition"))
        return table, test, parts.of(train, len(table.labels))

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The label skew over clients of `build` with the same seed."""
        table, _, partition = self.federate(seed)
        return measure_skew(partition, {"label": table.labels})

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem; the seed determines test split, partition and initial model. No data folder is read.

        Inputs are standardised with the mean and deviation of the clients' samples.
        """
        table, test, partition = self.federate(seed)
        seen = table.inputs[torch.from_numpy(np.concatenate(partition.indices))]
        deviation = seen.std(dim=0)
        inputs = (table.inputs - seen.mean(dim=0)) / torch.where(deviation > 0, deviation, 1.0)
        samples = TensorData(inputs, dict(table.targets))
        with seeded(torch.device("cpu"), seed, self.name, "model"):
            model = self.model(inputs.shape[1])
        return Problem(
            model,
            self.objectives(),
            clients=[Subset(samples, torch.from_numpy(index)) for index in partition.indices],
            test=Subset(samples, torch.from_numpy(test)),
            name=self.name,
        )
