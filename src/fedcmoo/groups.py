"""Groups of a model's parameters, by prefixes of their names: those that all objectives share, and private ones."""

from __future__ import annotations

from collections.abc import Sequence

Prefixes = tuple[str, ...]


def is_under(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a parameter or buffer is one of the modules or parameters with these names, or within one.

    >>> is_under("heads.0.weight", ["heads"]), is_under("heads2.weight", ["heads"])
    (True, False)
    """
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def shared_prefixes(shared: Sequence[str] | str | None, names: Sequence[str]) -> Prefixes | None:
    """The prefixes of the shared ones among the trainable parameters; None if all are shared."""
    return None if shared is None or shared == "all" else _checked("shared", shared, names)


def private_prefixes(private: Sequence[str] | str, shared: Prefixes | None, names: Sequence[str]) -> Prefixes:
    """The prefixes of the private ones among the trainable parameters, none of which is shared."""
    prefixes = _checked("private", private, names)
    both = [name for name in names if is_under(name, prefixes) and is_under(name, shared or ())]
    if both:
        raise ValueError(f"a parameter must be shared or private, but {both[0]!r} is both")
    if all(is_under(name, prefixes) for name in names):
        raise ValueError("a model must have a trainable parameter that is not private, but all of them are")
    return prefixes


def _checked(what: str, prefixes: Sequence[str] | str, names: Sequence[str]) -> Prefixes:
    found = (prefixes,) if isinstance(prefixes, str) else tuple(prefixes)
    for prefix in found:
        if not any(is_under(name, [prefix]) for name in names):
            raise ValueError(f"{what} names {prefix!r}, but the model has no trainable parameter under that name")
    return found
