"""Checks of settings that many classes share; each raises an error that names the setting and its value."""

import sys
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints


def positive(**settings: float) -> None:
    """Raise unless every setting is a positive, finite number."""
    for name, value in settings.items():
        if not (isinstance(value, Real) and 0 < value <= sys.float_info.max):
            raise ValueError(f"{name} must be positive and finite, but got {value!r}")


def not_negative(**settings: float) -> None:
    """Raise unless every setting is zero or a positive, finite number."""
    for name, value in settings.items():
        if not (isinstance(value, Real) and 0 <= value <= sys.float_info.max):
            raise ValueError(f"{name} must be zero or positive, and finite, but got {value!r}")


def at_least_one(**settings: int | None) -> None:
    """Raise unless every setting is a whole number of at least 1, or None."""
    for name, value in settings.items():
        if value is not None and not (isinstance(value, Integral) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1, but got {value!r}")


def below_one(**settings: float) -> None:
    """Raise unless every setting is at least 0 and below 1."""
    for name, value in settings.items():
        if not (isinstance(value, Real) and 0 <= value < 1):
            raise ValueError(f"{name} must be at least 0 and below 1, but got {value!r}")


def check_literals(settings: Any) -> None:
    """Raise unless every field of a dataclass whose type is a `Literal` has one of its values."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value, values = getattr(settings, field.name), get_args(hints[field.name])
        if get_origin(hints[field.name]) is Literal and value not in values:
            *others, last = map(repr, values)
            raise ValueError(f"{field.name} must be {', '.join(others)} or {last}, but got {value!r}")
