"""The tables and figures of the paper, by name, in the order in which `all` makes them."""

from fedcmoo.reproduce.targets.base import PaperTarget
from fedcmoo.reproduce.targets.curves import Curves, Radial
from fedcmoo.reproduce.targets.delta_m import DeltaM
from fedcmoo.reproduce.targets.drift import DriftFigure
from fedcmoo.reproduce.targets.gram import GramTable
from fedcmoo.reproduce.targets.local_progress import LocalProgressFigure
from fedcmoo.reproduce.targets.preferences import Preferences
from fedcmoo.reproduce.targets.qm9 import QM9Figure
from fedcmoo.reproduce.targets.rate import Rate
from fedcmoo.reproduce.targets.tables import Table1, Table2
from fedcmoo.reproduce.targets.variants import MinimumWeightTable, OneWayTable

TARGETS: dict[str, type[PaperTarget]] = {
    target.name: target
    for target in (
        *(Table1, Curves, DriftFigure, QM9Figure, Preferences, Table2),
        *(GramTable, OneWayTable, MinimumWeightTable, Radial, DeltaM, LocalProgressFigure, Rate),
    )
}

__all__ = ["TARGETS", "PaperTarget"]
