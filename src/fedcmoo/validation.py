"""Checks of settings that many classes share; each raises an error that names the setting and its value."""

from __future__ import annotations

import sys


def positive(**settings: float) -> None:
    """Raise unless every setting is a positive, finite number."""
    for name, value in settings.items():
        if not (isinstance(value, (int, float)) and 0 < value <= sys.float_info.max):
            raise ValueError(f"{name} must be positive and finite, but got {value}")


def not_negative(**settings: float) -> None:
    """Raise unless every setting is zero or a positive, finite number."""
    for name, value in settings.items():
        if not (isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max):
            raise ValueError(f"{name} must be zero or positive, and finite, but got {value}")


def at_least_one(**settings: int | None) -> None:
    """Raise unless every setting is a whole number of at least 1, or None."""
    for name, value in settings.items():
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1, but got {value}")


def below_one(**settings: float) -> None:
    """Raise unless every setting is at least 0 and below 1."""
    for name, value in settings.items():
        if not (isinstance(value, (int, float)) and 0 <= value < 1):
            raise ValueError(f"{name} must be at least 0 and below 1, but got {value}")
