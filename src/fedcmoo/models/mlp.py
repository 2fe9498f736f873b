"""A small network for tabular data: one hidden layer shared by all objectives, and a linear head for each."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn


class MLP(nn.Module):
    """A shared hidden layer of rectified linear units, and a linear head for each objective.

    Args:
        inputs: the number of input features p.
        hidden: the number of hidden units.
        heads: the number of outputs by objective; with one output the dimension is dropped.

    Input [B, p]; output a dict by objective of tensors [B] or [B, outputs].

    >>> model = MLP(inputs=64, hidden=32, heads={"digit": 10, "value": 1})
    >>> sum(p.numel() for p in model.parameters())
    2443
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, inputs: int, hidden: int, heads: Mapping[str, int]) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, outputs) for name, outputs in heads.items()})

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        features = self.encoder(inputs)
        outputs = {name: head(features) for name, head in self.heads.items()}
        return {name: output.squeeze(1) if output.shape[1] == 1 else output for name, output in outputs.items()}
