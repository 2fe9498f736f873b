"""The tables and figures of the paper, by name, in the order in which `all` makes them."""

from fedcmoo.reproduce.targets.base import Target
from fedcmoo.reproduce.targets.curves import Curves, Radial
from fedcmoo.reproduce.targets.delta_m import DeltaM
from fedcmoo.reproduce.targets.drift import Drift
from fedcmoo.reproduce.targets.gram import Gram
from fedcmoo.reproduce.targets.local_progress import LocalProgress
from fedcmoo.reproduce.targets.preferences import Preferences
from fedcmoo.reproduce.targets.qm9 import QM9
from fedcmoo.reproduce.targets.rate import Rate
from fedcmoo.reproduce.targets.tables import OneWay, Table1, Table2

TARGETS: dict[str, type[Target]] = {
    target.name: target
    for target in (Table1, Curves, Drift, QM9, Preferences, Table2, Gram, OneWay, Radial, DeltaM, LocalProgress, Rate)
}

__all__ = ["TARGETS", "Target"]
