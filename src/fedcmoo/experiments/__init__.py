"""Ready-made problems by name: frozen settings with `build(seed, data) -> Problem`.

>>> from fedcmoo.experiments import PROBLEMS
>>> problem = PROBLEMS["two-digits"](clients=10).build(seed=0)
>>> problem.N, [objective.name for objective in problem.objectives]
(10, ['left', 'right'])
"""

from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedcmoo.data.skew import Skew
from fedcmoo.experiments.celeba import CelebA, CelebA5
from fedcmoo.experiments.couples import Couples
from fedcmoo.experiments.digit_groups import DigitGroups
from fedcmoo.experiments.loans import Loans
from fedcmoo.experiments.mixed_digits import MixedDigits
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.experiments.pairs import CIFAR10MNIST, MNISTFMNIST, MultiMNIST
from fedcmoo.experiments.qm9 import QM9
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.problem import Problem


class ReadyProblem(Protocol):
    """Frozen settings that build a `Problem`; `title` is its line in `fedcmoo list`."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, **settings: Any) -> None: ...

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The label skew over clients of `build` with the same arguments."""

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Build the problem; the seed determines validation split, partition and initial model."""


PROBLEMS: dict[str, type[ReadyProblem]] = {
    problem.name: problem
    for problem in (
        *(TwoDigits, MixedDigits, DigitGroups, Loans, Couples),
        *(MultiMNIST, MNISTFMNIST, CIFAR10MNIST, CelebA, CelebA5, QM9, OwnProblem),
    )
}
"""Problem classes by the name used in `fedcmoo run` and `fedcmoo list`."""

__all__ = [
    "CIFAR10MNIST",
    "MNISTFMNIST",
    "PROBLEMS",
    "QM9",
    "CelebA",
    "CelebA5",
    "Couples",
    "DigitGroups",
    "Loans",
    "MixedDigits",
    "MultiMNIST",
    "OwnProblem",
    "ReadyProblem",
    "TwoDigits",
]
