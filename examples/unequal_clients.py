"""Clients that differ: one model for all, fair ones, and private last layers, by the accuracy at each client.

    python examples/unequal_clients.py ROUNDS FIGURE

Twenty clients have scikit-learn's digits, drawn in four ways: most of them upright, few of them upside down, mirrored,
or faint with noise. It prints the mean, the worst tenth and the spread of the accuracies on the clients' own test data,
and draws their distributions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedcmoo import FedAvg, FedCMOO, FedMGDAPlus, Objective, Problem, Result, accuracy, client_objectives, fit
from fedcmoo.client_scores import QUANTILES, STATISTICS, distribution
from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.run_charts import SHARE
from fedcmoo.report.static import draw

GROUPS = ["upright"] * 11 + ["turned"] * 3 + ["mirrored"] * 3 + ["faint"] * 3

Samples = tuple[Tensor, Tensor]


def clients() -> tuple[list[Samples], list[Samples]]:
    """The clients' training and test samples: 60 and 29 digits each."""
    rng = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))[: 89 * len(GROUPS)].reshape(len(GROUPS), 89)
    draw_as = {
        "upright": lambda x: x,
        "turned": lambda x: x[:, ::-1, ::-1],
        "mirrored": lambda x: x[:, :, ::-1],
        "faint": lambda x: 0.5 * x + rng.normal(scale=0.15, size=x.shape),
    }
    parts = []
    for group, index in zip(GROUPS, order, strict=True):
        drawn = np.ascontiguousarray(draw_as[group](images[index].reshape(-1, 8, 8) / 16))
        parts.append((torch.from_numpy(drawn).flatten(1).float(), torch.from_numpy(labels[index])))
    return [(x[:60], y[:60]) for x, y in parts], [(x[60:], y[60:]) for x, y in parts]


def network() -> nn.Module:
    """A network with one hidden layer, the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def of_model(result: Result, test: list[Samples]) -> dict[str, float]:
    """The distribution of one model's accuracy over clients."""
    with torch.no_grad():
        return distribution([(result.model(x).argmax(1) == y).double().mean().item() for x, y in test], True)


def main(rounds: int, path: Path) -> None:
    train, test = clients()
    digit = [Objective("digit", cross_entropy, [accuracy])]
    one_model = Problem(network(), digit, train, client_test=test)
    own_layers = Problem(network(), digit, train, client_test=test, private=("2",))
    settings = {"client_lr": 0.2, "batch_size": 32}
    groups = client_objectives(one_model, GROUPS)
    found = {
        "FedAvg": of_model(fit(one_model, FedAvg(**settings), rounds), test),
        "FedMGDA+": of_model(fit(one_model, FedMGDAPlus(server_lr=0.3, **settings), rounds), test),
        "FedCMOO, groups as objectives": of_model(fit(groups, FedCMOO(**settings), rounds), test),
    }
    last = fit(own_layers, FedAvg(**settings), rounds).history[-1].client_test
    assert last is not None
    found["FedAvg, private last layer"] = last["digit"]["accuracy"]
    for label, values in found.items():
        print(label, {name: round(values[name], 3) for name in STATISTICS})
    lines = [
        Line(label, {SHARE: list(QUANTILES)}, [values[f"q{p}"] for p in QUANTILES], style="marked")
        for label, values in found.items()
    ]
    see = "For each share of the clients, the accuracy that they do not exceed."
    note = f"20 clients, {rounds} rounds with 10 of them, one seed"
    panel = Panel("accuracy of each client on its own test data", "accuracy", lines)
    draw(Chart("unequal-clients", "Clients that differ", see, [panel], note), path)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
