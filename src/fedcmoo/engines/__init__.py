"""Engines: where clients run. Methods, clients, compressors and weights never know which one it is."""

from fedcmoo.engines.base import Engine, Session
from fedcmoo.engines.local import Local
from fedcmoo.engines.ray import Ray
from fedcmoo.problem import Problem


def choose_engine(engine: Engine | None, problem: Problem) -> Engine:
    """The engine asked for, or the best one for this machine and problem."""
    return Local() if engine is None else engine


ENGINES: dict[str, type[Engine]] = {"local": Local, "ray": Ray}

__all__ = ["ENGINES", "Engine", "Local", "Ray", "Session", "choose_engine"]
