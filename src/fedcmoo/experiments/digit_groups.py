"""Groups of clients as objectives: one model for all groups, judged by its worst group."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcmoo.data.partition import IntArray, Partition, iid
from fedcmoo.experiments.tables import TableData, TableProblem
from fedcmoo.problem import Objective, accuracy

GROUPS = ("upright", "turned", "mirrored", "faint")
"""The transformation of each group's digits; the last group's digits also have noise."""

ELSEWHERE = -1
"""The target of a sample for the objectives of groups it does not belong to."""


@dataclass(frozen=True, kw_only=True)
class DigitGroups(TableProblem):
    """scikit-learn's digits in four groups of clients: upright, upside down, mirrored, and faint with noise.

    Every group is an objective: the cross-entropy on the data of its clients. A 6 of the second group looks like a 9 of
    the first one, and the last group is harder than the others, so one small model cannot fit all groups equally well.
    """

    name: ClassVar[str] = "digit-groups"
    title: ClassVar[str] = "digits in four groups of clients, each group an objective; no download"

    clients: int = 12
    hidden: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients % len(GROUPS):
            raise ValueError(f"clients must be a multiple of the {len(GROUPS)} groups, but got {self.clients}")

    def table(self) -> TableData:
        """449 digits of each group."""
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        n = len(images) - len(images) % len(GROUPS)
        x = images[:n].reshape(-1, 8, 8) / 16
        group = np.arange(n) % len(GROUPS)
        noise = np.random.default_rng(0).normal(scale=0.15, size=x.shape)
        drawn = [x, x[:, ::-1, ::-1], x[:, :, ::-1], 0.5 * x + noise]
        inputs = np.select([(group == k)[:, None, None] for k in range(len(GROUPS))], drawn)
        targets = {name: torch.from_numpy(np.where(group == k, labels[:n], ELSEWHERE)) for k, name in enumerate(GROUPS)}
        return TableData(torch.from_numpy(inputs.reshape(n, -1)).float(), targets, group)

    def partition(self, labels: IntArray, rng: np.random.Generator) -> Partition:
        """Every client belongs to one group and has an equal share of its samples."""
        each = self.clients // len(GROUPS)
        members = [np.flatnonzero(labels == k) for k in range(len(GROUPS))]
        shares = [iid(len(index), each, rng).of(index, len(labels)).indices for index in members]
        return Partition([index for group in shares for index in group], len(labels))

    def objectives(self) -> list[Objective]:
        return [Objective(name, cross_entropy, metrics=[accuracy]) for name in GROUPS]

    def model(self, inputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 10))
