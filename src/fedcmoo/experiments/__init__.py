"""The ready-made problems, by name: frozen settings with `build(seed, data) -> Problem`.

>>> from fedcmoo.experiments import PROBLEMS
>>> problem = PROBLEMS["two-digits"](clients=10).build(seed=0)
>>> problem.N, [objective.name for objective in problem.objectives]
(10, ['left', 'right'])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedcmoo.data.skew import Skew
from fedcmoo.experiments.cifar10_mnist import CIFAR10MNIST
from fedcmoo.experiments.mnist_fmnist import MNISTFMNIST
from fedcmoo.experiments.multimnist import MultiMNIST
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.problem import Problem


class Experiment(Protocol):
    """A ready-made problem's settings: a frozen dataclass, all of whose fields have defaults."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, **settings: Any) -> None: ...

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """How unevenly `build` with the same arguments deals out the objectives' labels."""

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """The problem with its data; the seed drives validation split, partition and initial model."""


PROBLEMS: dict[str, type[Experiment]] = {
    problem.name: problem for problem in (TwoDigits, MultiMNIST, MNISTFMNIST, CIFAR10MNIST)
}
"""By the name that `fedcmoo run` and `fedcmoo list` use."""
