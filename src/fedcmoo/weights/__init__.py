"""Weighting rules: G (and losses, preferences) -> w on the simplex. Nothing here has the size of the model."""

from fedcmoo.weights.base import Weights
from fedcmoo.weights.find_weights import FindWeights
from fedcmoo.weights.min_norm import MinNorm, min_norm
from fedcmoo.weights.simplex import project_on_simplex

WEIGHTS: dict[str, type[Weights]] = {"find-weights": FindWeights, "min-norm": MinNorm}

__all__ = ["WEIGHTS", "FindWeights", "MinNorm", "Weights", "min_norm", "project_on_simplex"]
