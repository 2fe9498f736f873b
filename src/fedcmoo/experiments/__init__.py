"""Ready-made problems by name: frozen settings with `build(seed, data) -> Problem`.

>>> from fedcmoo.experiments import PROBLEMS
>>> problem = PROBLEMS["two-digits"](clients=10).build(seed=0)
>>> problem.N, [objective.name for objective in problem.objectives]
(10, ['left', 'right'])
"""

from __future__ import annotations

from fedcmoo.experiments.base import ReadyProblem
from fedcmoo.experiments.celeba import CelebA, CelebA5
from fedcmoo.experiments.cifar10_mnist import CIFAR10MNIST
from fedcmoo.experiments.couples import Couples
from fedcmoo.experiments.digit_groups import DigitGroups
from fedcmoo.experiments.loans import Loans
from fedcmoo.experiments.mixed_digits import MixedDigits
from fedcmoo.experiments.mnist_fmnist import MNISTFMNIST
from fedcmoo.experiments.multimnist import MultiMNIST
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.experiments.qm9 import QM9
from fedcmoo.experiments.two_digits import TwoDigits

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
