"""QM9: eleven properties of small molecules."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn.functional import mse_loss

from fedcmoo.data.base import Subset
from fedcmoo.data.folder import data_folder
from fedcmoo.data.graphs import GraphData
from fedcmoo.data.partition import IntArray, Partition, iid
from fedcmoo.data.qm9 import PROPERTIES, load_qm9
from fedcmoo.data.skew import Skew, measure_skew
from fedcmoo.models.gnn import GNN
from fedcmoo.problem import Objective, Problem
from fedcmoo.randomness import numpy_generator, seeded
from fedcmoo.validation import at_least_one


class Molecules(NamedTuple):
    """The indices of training, validation and test molecules, and the partition."""

    train: IntArray
    validation: IntArray
    test: IntArray
    partition: Partition
    """The partition of the training molecules, as indices into all molecules."""


@dataclass(frozen=True, kw_only=True)
class QM9:
    """Regression of eleven properties of molecules, given as complete graphs of atoms; mean squared error for each.

    Molecules are drawn and distributed at random. Targets are standardised with the mean and deviation of the
    training molecules. The model is a graph network of 617,675 parameters. Needs the extra `qm9`.

    Args:
        clients: the number of clients N.
        train_molecules: the number of training molecules of all clients together.
        validation_molecules: the number of validation molecules.
        test_molecules: the number of test molecules.
    """

    name: ClassVar[str] = "qm9"
    title: ClassVar[str] = "eleven properties of small molecules, by a graph network"

    clients: int = 20
    train_molecules: int = 40_000
    validation_molecules: int = 10_000
    test_molecules: int = 10_000

    def __post_init__(self) -> None:
        at_least_one(clients=self.clients, train_molecules=self.train_molecules)
        at_least_one(validation_molecules=self.validation_molecules, test_molecules=self.test_molecules)
        if self.train_molecules < self.clients:
            raise ValueError(
                f"train_molecules must be at least one per client ({self.clients}), but got {self.train_molecules}"
            )

    def draw(self, seed: int, molecules: int) -> Molecules:
        """Draw training, validation and test molecules from a given number, and distribute the first to the clients."""
        wanted = (self.train_molecules, self.validation_molecules, self.test_molecules)
        if sum(wanted) > molecules:
            raise ValueError(
                f"train_molecules, validation_molecules and test_molecules must be at most {molecules} together, "
                f"but are {sum(wanted)}"
            )
        order = numpy_generator(seed, self.name, "split").permutation(molecules)
        train, validation, test, _ = np.split(order, np.cumsum(wanted))
        parts = iid(len(train), self.clients, numpy_generator(seed, self.name, "partition"))
        return Molecules(train, validation, test, parts.of(train, molecules))

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The clients' sizes only, since regression has no labels to count."""
        return measure_skew(self.draw(seed, len(load_qm9(data_folder(data))["sizes"])).partition, {})

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem with its data; the seed determines the molecules drawn, the partition and the initial
        model."""
        arrays = {name: torch.from_numpy(array) for name, array in load_qm9(data_folder(data)).items()}
        drawn = self.draw(seed, len(arrays["sizes"]))
        raw = arrays["targets"]
        seen = raw[torch.from_numpy(drawn.train)]
        standard = ((raw - seen.mean(dim=0)) / seen.std(dim=0)).float()
        graphs = GraphData(
            arrays["sizes"], arrays["nodes"], arrays["positions"], arrays["bonds"], standard.T.contiguous().unbind(0)
        )
        with seeded(torch.device("cpu"), seed, self.name, "model"):
            model = GNN(objectives=len(PROPERTIES))
        return Problem(
            model,
            [Objective(name, mse_loss) for name in PROPERTIES],
            clients=[Subset(graphs, torch.from_numpy(index)) for index in drawn.partition.indices],
            test=Subset(graphs, torch.from_numpy(drawn.test)),
            validation=Subset(graphs, torch.from_numpy(drawn.validation)),
            name=self.name,
        )
