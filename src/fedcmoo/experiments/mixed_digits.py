"""One handwritten digit with three losses of different kinds and scales."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedcmoo.experiments.tables import TableData, TableProblem
from fedcmoo.models.mlp import MLP
from fedcmoo.problem import Objective, accuracy


@dataclass(frozen=True, kw_only=True)
class MixedDigits(TableProblem):
    """scikit-learn's handwritten digits: classify the digit, reconstruct its pixels, and regress its value.

    The losses are a cross-entropy, the mean squared error of 64 pixels in [0, 1], and the squared error of the value
    from 0 to 9. An untrained model has losses of about 2.3, 0.2 and 28.
    """

    name: ClassVar[str] = "mixed-digits"
    title: ClassVar[str] = "digits of scikit-learn: class, pixels and value, three kinds of loss; no download"

    hidden: int = 64

    def table(self) -> TableData:
        """The 1,797 digits of 8x8 pixels."""
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        inputs = torch.from_numpy(pixels).float() / 16
        digit = torch.from_numpy(labels.astype("int64"))
        return TableData(inputs, {"digit": digit, "pixels": inputs, "value": digit.float()}, digit.numpy())

    def objectives(self) -> list[Objective]:
        return [
            Objective("digit", cross_entropy, metrics=[accuracy]),
            Objective("pixels", mse_loss),
            Objective("value", mse_loss),
        ]

    def model(self, inputs: int) -> nn.Module:
        return MLP(inputs, self.hidden, {"digit": 10, "pixels": inputs, "value": 1})
