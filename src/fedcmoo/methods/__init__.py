"""Federated algorithms, one per file, each written as in the paper."""

from fedcmoo.methods.base import Method
from fedcmoo.methods.fedavg import FedAvg
from fedcmoo.methods.fedcmoo import FedCMOO
from fedcmoo.methods.fedcmoo_pref import FedCMOOPref
from fedcmoo.methods.fedcmoo_t import FedCMOOT
from fedcmoo.methods.fedmgda_plus import FedMGDAPlus
from fedcmoo.methods.fsmgda import FSMGDA
from fedcmoo.methods.fsmgda_m_vr import FSMGDAMVR
from fedcmoo.methods.mgda import MGDA
from fedcmoo.methods.scalarized import Scalarized

METHODS: dict[str, type[Method]] = {
    "fedcmoo": FedCMOO,
    "fedcmoo-pref": FedCMOOPref,
    "fedcmoo-t": FedCMOOT,
    "fsmgda": FSMGDA,
    "fsmgda-m-vr": FSMGDAMVR,
    "fedavg": FedAvg,
    "fedmgda-plus": FedMGDAPlus,
    "scalarized": Scalarized,
    "mgda": MGDA,
}

__all__ = [
    "FSMGDA",
    "FSMGDAMVR",
    "METHODS",
    "MGDA",
    "FedAvg",
    "FedCMOO",
    "FedCMOOPref",
    "FedCMOOT",
    "FedMGDAPlus",
    "Method",
    "Scalarized",
]
