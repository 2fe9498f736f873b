"""The ready-made problems, by name: frozen settings with `build(seed, data) -> Problem`.

>>> from fedcmoo.experiments import PROBLEMS
>>> problem = PROBLEMS["two-digits"](clients=10).build(seed=0)
>>> problem.N, [objective.name for objective in problem.objectives]
(10, ['left', 'right'])
"""

from __future__ import annotations

from fedcmoo.experiments.two_digits import TwoDigits

PROBLEMS: dict[str, type[TwoDigits]] = {
    "two-digits": TwoDigits,
}
