"""Settings as frozen dataclasses, and their conversion to and from TOML tables.

A field whose metadata names a registry holds another settings object; in a table it is that object's name, or a
table with its name and settings:

    [method]
    name = "fedcmoo"
    client_lr = 0.5
    gram = { name = "exact" }
    weights = { beta = 0.01 }

A table without a name has settings of the default object.
"""

import difflib
import json
import sys
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Table = dict[str, Any]
Registry = Mapping[str, type[Any]]

NONE = "none"
"""The text for None in TOML, which has no null."""


class Named(Generic[T]):
    """The type of a field that holds an object, and that takes the object or its name in a registry."""

    if TYPE_CHECKING:  # how type checkers learn that a field is set with a T or a name, and read as a T

        def __get__(self, instance: object, owner: type[Any]) -> T: ...
        def __set__(self, instance: object, value: T | str) -> None: ...
    else:

        def __class_getitem__(cls, item: Any) -> Any:
            return item


def registered(default: Any, registry: Registry) -> Any:
    """A field that holds an object of a registry; see `resolve_names`."""
    return field(default=default, metadata={"registry": registry})


class SettingsError(ValueError):
    """A setting is unknown or has an invalid value."""


def from_table(cls: type[T], table: Mapping[str, Any], where: str = "", name: str = "") -> T:
    """Make the settings object of class `cls` from a table; error messages mention `where` it is and its `name`."""
    known: dict[str, Field[Any]] = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    values: Table = {}
    for key, value in table.items():
        place = f"{where}.{key}" if where else key
        if key not in known:
            raise SettingsError(f"unknown setting {place!r}{f' of {name}' if name else ''}{suggestion(key, known)}")
        registry = known[key].metadata.get("registry")
        if registry is not None and not (value == NONE and type(None) in get_args(hints[key])):
            values[key] = from_registry(registry, _named(value, known[key], registry), place)
        else:
            values[key] = _convert(value, hints[key], place)
    try:
        return cls(**values)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"in [{where}]: {error}" if where else str(error)) from error


def _named(value: Any, field: Field[Any], registry: Registry) -> Any:
    """Complete a table without a name, which has settings of the default object."""
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if not isinstance(value, Mapping) or "name" in value or default in (MISSING, None):
        return value
    return merge(to_table(default, registry), value)


def from_registry(registry: Registry, value: Any, where: str) -> Any:
    """Make the object given by a name, or by a table with a name and settings."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise SettingsError(f"{where} must be a name or a table with a name, but got {value!r}")
    name = table["name"]
    if name not in registry:
        raise SettingsError(f"{where} {name!r} is not known{suggestion(name, registry)}")
    return from_table(registry[name], {k: v for k, v in table.items() if k != "name"}, where, name)


def object_of(value: Any, registry: Registry, where: str) -> Any:
    """The object given by a name; objects are returned unchanged, and a class is an error that says what to write."""
    if isinstance(value, type):
        raise TypeError(f"{where} must be an object such as {value.__name__}(), but got the class {value.__name__}")
    return from_registry(registry, value, where) if isinstance(value, str) else value


def resolve_names(settings: Any) -> None:
    """Replace names by objects in all fields with a registry, so that `FedCMOO(weights="upgrad")` works."""
    for f in fields(settings):
        registry = f.metadata.get("registry")
        if registry is not None:
            object.__setattr__(settings, f.name, object_of(getattr(settings, f.name), registry, f.name))


def described(settings: Any, registry: Registry) -> Table:
    """The table of a settings object; only the name of its class if a configuration cannot express it."""
    try:
        return to_table(settings, registry)
    except SettingsError:
        return {"name": type(settings).__name__}


def to_table(settings: Any, registry: Registry | None = None) -> Table:
    """The table from which `from_table` (or, with its registry, `from_registry`) makes an equal object."""
    table: Table = {}
    if registry is not None:
        table["name"] = name_of(settings, registry)
    for f in fields(settings):
        if not f.init:
            continue
        value = getattr(settings, f.name)
        nested = f.metadata.get("registry")
        if value is None:
            if f.default is not None:
                table[f.name] = NONE
        elif nested is not None:
            table[f.name] = to_table(value, nested)
        elif is_dataclass(value):
            raise SettingsError(f"{f.name} = {value!r} cannot be written as a setting")
        else:
            table[f.name] = list(value) if isinstance(value, (tuple, list)) else value
    return table


def name_of(settings: Any, registry: Registry) -> str:
    """The registry's name for an object's class."""
    for name, cls in registry.items():
        if type(settings) is cls:
            return name
    raise SettingsError(f"{settings!r} has no name by which a configuration could mention it")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known name, or all known names."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Merge the entries of `over` into `base`, including nested tables. Another name is another object: none of the old
    one's settings are kept."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, Mapping) and "name" not in value:
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(value, str):
            value = {"name": value}
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            result[key] = merge(old, value)
        else:
            result[key] = value
    return result


def flatten(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Flatten nested tables into names with dots.

    >>> flatten({"rounds": 3, "method": {"name": "fedavg"}})
    {'rounds': 3, 'method.name': 'fedavg'}
    """
    flat: Table = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def read_toml(path: Path) -> Table:
    """The table in a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise SettingsError(f"the configuration {path} does not exist") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and bytes that are no text
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def write_toml(table: Mapping[str, Any], path: str = "") -> str:
    """A table as TOML text: plain settings first, then nested tables."""
    plain = [f"{key} = {_literal(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    nested = [(key, value) for key, value in table.items() if isinstance(value, Mapping)]
    text = "\n".join(plain) + "\n" if plain else ""
    for key, value in nested:
        place = f"{path}.{key}" if path else key
        text += f"\n[{place}]\n{write_toml(value, place)}"
    return text


def _literal(value: Any) -> str:
    if hasattr(value, "tolist"):  # a NumPy number or array
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a JSON string is a TOML string
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(v) for v in value) + "]"
    return repr(value)


def _convert(value: Any, hint: Any, place: str) -> Any:
    """The value converted to its type hint, or an error that says what is expected."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if type(None) in args and (value is None or value == NONE):
            return None
        choices = [a for a in args if a is not type(None)]
        for choice in choices:
            try:
                return _convert(value, choice, place)
            except SettingsError:
                if choice is choices[-1]:
                    raise
    if origin is Literal:
        if value not in args:
            raise SettingsError(f"{place} must be one of {', '.join(map(repr, args))}, but got {value!r}")
        return value
    if origin in (Sequence, list, tuple) or hint in (Sequence, list, tuple):
        if not isinstance(value, (list, tuple)):
            raise SettingsError(f"{place} must be a list, but got {value!r}")
        inner = args[0] if args else Any
        return tuple(_convert(v, inner, place) for v in value)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if abs(value) > sys.float_info.max:
            raise SettingsError(f"{place} must be a number of at most {sys.float_info.max:g}, but is larger")
        return float(value)
    expected = hint if isinstance(hint, type) else object
    if not isinstance(value, expected) or (isinstance(value, bool) and hint is int):
        raise SettingsError(f"{place} must be {_NAMES.get(hint, str(hint))}, but got {value!r}")
    if hint is int and isinstance(value, int) and abs(value) >= 2**63:
        raise SettingsError(f"{place} must be a whole number of at most 64 bits, but has {value.bit_length()}")
    return value


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def defaults(cls: type[Any]) -> Table:
    """The settings of a class with their defaults, for help texts."""
    return {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(cls)
        if f.init and (f.default is not MISSING or f.default_factory is not MISSING)
    }
