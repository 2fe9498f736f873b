"""The default rule against FedAvg on problems that no rule was chosen by: python benchmarks/held_out.py [SEED ...]."""

import sys
from collections.abc import Callable

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedcmoo import FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.bench.weights_result import FEDAVG, WeightsBench
from fedcmoo.engines import Local
from fedcmoo.experiments.loans import OneLogit
from fedcmoo.methods.base import WeightedLoss
from fedcmoo.models.mlp import MLP

ROUNDS = 40


def standard(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def deal(
    x: np.ndarray, targets: dict[str, np.ndarray], clients: int, seed: int, by: str
) -> tuple[list[tuple[Tensor, dict[str, Tensor]]], tuple[Tensor, dict[str, Tensor]]]:
    """A quarter is the test part; half of the rest is dealt out in the order of a target, so that clients differ."""
    order = np.random.default_rng(seed).permutation(len(x))
    test, rest = np.split(order, [len(x) // 4])
    skewed, even = np.array_split(rest, 2)
    skewed = skewed[np.argsort(targets[by][skewed], kind="stable")]
    halves = [np.array_split(half, clients) for half in (skewed, even)]
    parts = [np.concatenate(pair) for pair in zip(*halves, strict=True)]

    def take(index: np.ndarray) -> tuple[Tensor, dict[str, Tensor]]:
        inputs = torch.from_numpy(standard(x)[index]).float()
        return inputs, {name: torch.from_numpy(values[index]) for name, values in targets.items()}

    return [take(part) for part in parts], take(test)


def tumours(seed: int) -> Problem:
    """Three kinds of loss: benign or malignant, the largest area in 100 µm², and ten standardised measures."""
    data = datasets.load_breast_cancer()
    targets = {
        "benign": data.target.astype(np.float32),
        "area": ((data.data[:, 23] - data.data[:, 23].mean()) / 100).astype(np.float32),
        "deviations": standard(data.data[:, 10:20]).astype(np.float32),
    }
    clients, test = deal(data.data[:, :10], targets, clients=6, seed=seed, by="benign")
    torch.manual_seed(seed)
    model = MLP(10, 24, {"benign": 1, "area": 1, "deviations": 10})
    losses = [binary_cross_entropy_with_logits, mse_loss, mse_loss]
    return Problem(model, [Objective(*pair) for pair in zip(targets, losses, strict=True)], clients, test=test)


def wine(seed: int) -> Problem:
    """Three kinds of loss: which of three growers, proline in 100 mg/l, and the hue (from 0.5 to 1.7)."""
    data = datasets.load_wine()
    targets = {
        "grower": data.target.astype(np.int64),
        "proline": ((data.data[:, 12] - data.data[:, 12].mean()) / 100).astype(np.float32),
        "hue": (data.data[:, 10] - data.data[:, 10].mean()).astype(np.float32),
    }
    clients, test = deal(data.data[:, [*range(10), 11]], targets, clients=4, seed=seed, by="grower")
    torch.manual_seed(seed)
    model = MLP(11, 16, {"grower": 3, "proline": 1, "hue": 1})
    losses = [cross_entropy, mse_loss, mse_loss]
    return Problem(model, [Objective(*pair) for pair in zip(targets, losses, strict=True)], clients, test=test)


def odds(output: Tensor, code: Tensor) -> Tensor:
    """Equalised odds: squared differences of the groups' mean predictions, for either label; code = 2 label + group."""
    members = torch.nn.functional.one_hot(code.long(), 4).float()  # [B, 4]
    counts = members.sum(dim=0)
    means = (torch.sigmoid(output) @ members) / counts.clamp(min=1)
    known = ((counts[::2] > 0) & (counts[1::2] > 0)).float()  # labels of which the batch has both groups
    return (known * (means[::2] - means[1::2]).square()).sum()


def patients(seed: int) -> Problem:
    """Fairness: whether diabetes gets worse than the median case, against equal odds for both sexes."""
    data = datasets.load_diabetes()
    worse, sex = data.target > np.median(data.target), data.data[:, 1] > 0
    targets = {"worse": worse.astype(np.float32), "odds": (2 * worse + sex).astype(np.float32)}
    clients, test = deal(np.delete(data.data, 1, axis=1), targets, clients=5, seed=seed, by="odds")
    torch.manual_seed(seed)
    objectives = [Objective("worse", binary_cross_entropy_with_logits), Objective("odds", odds)]
    return Problem(OneLogit(9, 16), objectives, clients, test=test)


PROBLEMS: dict[str, tuple[Callable[[int], Problem], float]] = {
    "tumours": (tumours, 0.02),
    "wine": (wine, 0.03),
    "patients": (patients, 0.2),
}
"""Problems, and client learning rates at which each objective can also be trained alone."""


def losses(name: str, method: WeightedLoss, seed: int) -> list[float]:
    problem = PROBLEMS[name][0](seed)
    scores = fit(problem, method, ROUNDS, seed=seed, evaluate_every=ROUNDS, engine=Local()).scores
    return [scores[objective.name]["loss"] for objective in problem.objectives]


def main(seeds: list[int]) -> None:
    objectives, found, alone = {}, {}, {}
    for name, (make, lr) in PROBLEMS.items():
        names = objectives[name] = [objective.name for objective in make(0).objectives]
        methods = {FEDAVG: FedAvg(client_lr=lr, batch_size=32), "default": FedCMOO(client_lr=lr, batch_size=32)}
        found[name] = {label: np.array([losses(name, m, s) for s in seeds]) for label, m in methods.items()}
        units = [FedAvg(client_lr=lr, batch_size=32, weights=row) for row in np.eye(len(names)).tolist()]
        alone[name] = np.array([[losses(name, m, s)[k] for k, m in enumerate(units)] for s in seeds])
    bench = WeightsBench(objectives, found, alone)
    print(bench.overview())
    for name in PROBLEMS:
        print(name, objectives[name], "change in %, by seed:", bench.change(name, "default").round(1).tolist())
        worst = [bench.worst_against_alone(name, label).round(3).tolist() for label in ("default", FEDAVG)]
        print("  worst objective against training it alone: default", worst[0], "FedAvg", worst[1])


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [0, 1, 2])
