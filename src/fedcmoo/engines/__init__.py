"""Engines, which run clients. No other package depends on the choice of engine."""

from fedcmoo.engines.base import Engine, Session
from fedcmoo.engines.choice import choose_engine, start_engine
from fedcmoo.engines.local import Local
from fedcmoo.engines.pool import Pool
from fedcmoo.engines.ray import Ray

ENGINES: dict[str, type[Engine]] = {"local": Local, "pool": Pool, "ray": Ray}

__all__ = ["ENGINES", "Engine", "Local", "Pool", "Ray", "Session", "choose_engine", "start_engine"]
