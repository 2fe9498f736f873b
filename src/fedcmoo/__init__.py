"""Federated multi-objective optimization: one model, several objectives, traffic that does not grow with them."""

from fedcmoo.callbacks import Callback
from fedcmoo.methods import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref
from fedcmoo.problem import Metric, Objective, Problem, accuracy
from fedcmoo.result import Result
from fedcmoo.training import fit

__version__ = "0.1.0"

__all__ = [
    "FSMGDA",
    "MGDA",
    "Callback",
    "FedAvg",
    "FedCMOO",
    "FedCMOOPref",
    "Metric",
    "Objective",
    "Problem",
    "Result",
    "accuracy",
    "fit",
]
