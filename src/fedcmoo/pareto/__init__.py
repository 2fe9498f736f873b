"""Pareto fronts: run FedCMOO-Pref for many preferences, and choose among the resulting models.

>>> from fedcmoo.pareto import evenly_spread
>>> evenly_spread(3, M=2)
[(1, 5), (1, 1), (5, 1)]
"""

from fedcmoo.pareto.front import Front, pick
from fedcmoo.pareto.point import Point
from fedcmoo.pareto.preferences import evenly_spread, parse_ratio, ratio_text
from fedcmoo.pareto.sweep import sweep

__all__ = ["Front", "Point", "evenly_spread", "parse_ratio", "pick", "ratio_text", "sweep"]
