"""Measures of multi-objective results: pure functions of losses, metrics and Gram matrices."""

from fedcmoo.metrics.front import angle, delta_m, hypervolume, non_dominated
from fedcmoo.metrics.gradients import conflict_angles, of_round, stationarity
from fedcmoo.metrics.starvation import starved
from fedcmoo.weights.preference import non_uniformity

__all__ = [
    "angle",
    "conflict_angles",
    "delta_m",
    "hypervolume",
    "non_dominated",
    "non_uniformity",
    "of_round",
    "starved",
    "stationarity",
]
