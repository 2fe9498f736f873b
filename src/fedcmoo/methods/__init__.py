"""The recipes: one algorithm a file, each written as the paper writes it."""

from fedcmoo.methods.base import Method
from fedcmoo.methods.fedavg import FedAvg
from fedcmoo.methods.fedcmoo import FedCMOO
from fedcmoo.methods.fsmgda import FSMGDA
from fedcmoo.methods.mgda import MGDA

METHODS: dict[str, type[Method]] = {"fedcmoo": FedCMOO, "fsmgda": FSMGDA, "fedavg": FedAvg, "mgda": MGDA}

__all__ = ["FSMGDA", "METHODS", "MGDA", "FedAvg", "FedCMOO", "Method"]
