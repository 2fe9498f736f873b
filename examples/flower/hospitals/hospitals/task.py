"""What the hospitals have agreed on: the columns, the model, the objectives and the method. No data are in here."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from flwr.app import Context
from torch import Tensor, nn

from fedcmoo import FedCMOO, Metric, Objective, Problem
from fedcmoo.data.remote import RemoteClients
from fedcmoo.gram import Exact
from fedcmoo.randomness import seeded

# Name, usual value and usual spread of each input; agreed on beforehand, so that nobody's statistics need to be shared.
COLUMNS = {
    "age": (60.0, 18.0),
    "heart_rate": (80.0, 15.0),
    "systolic": (130.0, 20.0),
    "glucose": (6.5, 2.5),
    "prior_visits": (1.5, 1.5),
}


class TwoHeads(nn.Module):
    """One body that both objectives share, and a small head for each."""

    shared = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(len(COLUMNS), 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.readmitted = nn.Linear(16, 1)
        self.days = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.body(x)
        return {"readmitted": self.readmitted(z).squeeze(1), "days": self.days(z).squeeze(1)}


def right(output: Tensor, target: Tensor) -> Tensor:
    """The share of patients for whom the more likely outcome is the true one."""
    return ((output > 0) == (target > 0.5)).double().mean()


def error_in_days(output: Tensor, target: Tensor) -> Tensor:
    """The mean error of the predicted stay; the model works with the logarithm of days."""
    return (output.exp() - target.exp()).abs().double().mean()


OBJECTIVES = [
    Objective("readmitted", nn.BCEWithLogitsLoss(), metrics=[Metric("accuracy", right)]),
    Objective("days", nn.SmoothL1Loss(), metrics=[Metric("error in days", error_in_days, higher_is_better=False)]),
]


def read(path: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """A hospital's table: the inputs [n, 5], and the targets [n] of the objectives that it has a column for.

    A cell that is empty is a missing label: NaN.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    inputs = [[(float(row[name]) - usual) / spread for name, (usual, spread) in COLUMNS.items()] for row in rows]
    found = [objective.name for objective in OBJECTIVES if objective.name in rows[0]]
    targets = {name: torch.tensor([float(row[name] or "nan") for row in rows]) for name in found}
    if "days" in targets:
        targets["days"] = targets["days"].log()
    return torch.tensor(inputs), targets


def problem(context: Context) -> Problem:
    """The problem as one hospital sees it, or the server: each has its own table and knows only how many others are."""
    site, run = context.node_config, context.run_config
    here = {int(site["partition-id"]): read(Path(str(site["data"])))} if site else {}
    test = None if site or run["test-data"] == "none" else read(Path(str(run["test-data"])))
    with seeded(torch.device("cpu"), int(run["seed"]), "model"):
        model = TwoHeads()
    return Problem(
        model,
        OBJECTIVES,
        clients=RemoteClients(int(run["sites"]), here),
        test=test,
        name="hospitals",
        weights="samples",
    )


def method(context: Context) -> FedCMOO:
    """FedCMOO. The model is so small that its Gram matrix is cheap to have exactly."""
    return FedCMOO(client_lr=0.1, server_lr=1.0, local_steps=10, batch_size=32, gram=Exact())
