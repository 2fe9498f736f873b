"""Corrections of local steps that keep clients with different data from drifting apart within a round."""

from fedcmoo.drift.base import Drift
from fedcmoo.drift.fedcm import FedCM
from fedcmoo.drift.fedprox import FedProx
from fedcmoo.drift.mvr import MVR
from fedcmoo.drift.scaffold import Scaffold
from fedcmoo.drift.storm import Storm

DRIFT: dict[str, type[Drift]] = {
    "none": Drift,
    "fedprox": FedProx,
    "fedcm": FedCM,
    "scaffold": Scaffold,
    "storm": Storm,
    "mvr": MVR,
}

__all__ = ["DRIFT", "MVR", "Drift", "FedCM", "FedProx", "Scaffold", "Storm"]
