"""Federated multi-objective optimization: one model, several objectives, communication independent of their number."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcmoo.callbacks import Callback as Callback
    from fedcmoo.comparison import compare as compare
    from fedcmoo.fairness import client_objectives as client_objectives
    from fedcmoo.methods import FSMGDA as FSMGDA
    from fedcmoo.methods import MGDA as MGDA
    from fedcmoo.methods import FedAvg as FedAvg
    from fedcmoo.methods import FedCMOO as FedCMOO
    from fedcmoo.methods import FedCMOOPref as FedCMOOPref
    from fedcmoo.methods import FedMGDAPlus as FedMGDAPlus
    from fedcmoo.pareto.sweep import sweep as sweep
    from fedcmoo.problem import Metric as Metric
    from fedcmoo.problem import Objective as Objective
    from fedcmoo.problem import Problem as Problem
    from fedcmoo.problem import accuracy as accuracy
    from fedcmoo.result import Result as Result
    from fedcmoo.training import fit as fit

__version__ = "0.1.0"

_PLACES = {
    "callbacks": ["Callback"],
    "fairness": ["client_objectives"],
    "comparison": ["compare"],
    "methods": ["FSMGDA", "MGDA", "FedAvg", "FedCMOO", "FedCMOOPref", "FedMGDAPlus"],
    "pareto": ["sweep"],
    "problem": ["Metric", "Objective", "Problem", "accuracy"],
    "result": ["Result"],
    "training": ["fit"],
}
__all__ = [name for names in _PLACES.values() for name in names]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds to import, and `fedcmoo --help` needs none."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"fedcmoo.{module}"), name)
    raise AttributeError(f"module 'fedcmoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
