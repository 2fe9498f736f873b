"""One run of a sweep over preferences."""

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
from torch import nn

from fedcmoo.evaluation import Scores
from fedcmoo.metrics import angle
from fedcmoo.weights.preference import check_preference, non_uniformity


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        label: its name in tables and figures.
        scores: its final losses and metrics by objective.
        preference: the requested preference; empty for a baseline.
        folder: the run's folder, which contains its model.
    """

    label: str
    scores: Scores
    preference: tuple[float, ...]
    folder: Path

    @property
    def losses(self) -> list[float]:
        """The final losses, [M]."""
        return [values["loss"] for values in self.scores.values()]

    @property
    def angle(self) -> float:
        """The angle between the losses and the preference's ray, in degrees."""
        return angle(self.losses, self.preference)

    @property
    def kl(self) -> float:
        """The non-uniformity μ_r of the losses."""
        return non_uniformity(check_preference(self.preference), np.array(self.losses))

    def load(self, model: nn.Module) -> nn.Module:
        """A copy of a model (the problem's) with this point's parameters."""
        model = copy.deepcopy(model)
        model.load_state_dict(safetensors.torch.load_file(self.folder / "model.safetensors"))
        return model
