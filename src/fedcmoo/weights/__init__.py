"""Weighting rules: G (and losses, preferences) -> w. No array here grows with the size of the model."""

from fedcmoo.weights.at_least_equal import AtLeastEqual
from fedcmoo.weights.base import WEIGHTS, RememberingWeights, Rule, Weights, check_rule, weigh
from fedcmoo.weights.find_weights import FindWeights, project_on_simplex
from fedcmoo.weights.find_weights_pref import Fallback, FindWeightsPref, PreferenceWeights
from fedcmoo.weights.min_norm import MinNorm, min_norm
from fedcmoo.weights.near_equal import NearEqual
from fedcmoo.weights.normalized import Normalized
from fedcmoo.weights.preference import check_preference, non_uniformity
from fedcmoo.weights.projection import DualProj, UPGrad
from fedcmoo.weights.torchjd import TORCHJD, TorchJD

WEIGHTS |= {
    "at-least-equal": AtLeastEqual,
    "find-weights": FindWeights,
    "min-norm": MinNorm,
    "near-equal": NearEqual,
    "normalized": Normalized,
    "dualproj": DualProj,
    "upgrad": UPGrad,
    **TORCHJD,
}

__all__ = [
    "TORCHJD",
    "WEIGHTS",
    "AtLeastEqual",
    "DualProj",
    "Fallback",
    "FindWeights",
    "FindWeightsPref",
    "MinNorm",
    "NearEqual",
    "Normalized",
    "PreferenceWeights",
    "RememberingWeights",
    "Rule",
    "TorchJD",
    "UPGrad",
    "Weights",
    "check_preference",
    "check_rule",
    "min_norm",
    "non_uniformity",
    "project_on_simplex",
    "weigh",
]
