"""Resolve a configuration from presets, files and options, and choose the run's folder."""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from fedcmoo.config import RunConfig, preset, variants
from fedcmoo.engines import ENGINES
from fedcmoo.experiments import PROBLEMS
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.history import read_history
from fedcmoo.methods import METHODS
from fedcmoo.run import HISTORY
from fedcmoo.settings import SettingsError, Table, defaults, merge, read_toml, suggestion

T = TypeVar("T")


def resolve(
    problem: str | None,
    method: str | None,
    config: Path | None = None,
    small: bool = False,
    sets: Sequence[str] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    sweep: bool = False,
) -> RunConfig:
    """Build a configuration from, in this order: the problem's preset, the TOML file, the options, --set.

    The file's settings of a problem or method other than the one chosen are ignored.
    """
    file, over = read_toml(config) if config is not None else {}, settings(sets)
    problem = _name(over.get("problem")) or problem or _name(file.get("problem")) or "two-digits"
    method = _name(over.get("method")) or method or _name(file.get("method")) or "fedcmoo"
    own = {"problem": {"name": OwnProblem.name, "source": problem}} if ":" in problem else {}
    problem = OwnProblem.name if own else problem
    known("problem", problem, [*PROBLEMS, *variants()])
    known("method", method, METHODS)
    base = preset(problem, method, small, sweep)
    if small and base == preset(problem, method, sweep=sweep):
        raise SettingsError(f"--small is for problems with a small variant, but {problem} has none: leave it out")
    for kind in ("problem", "method"):
        if _name(file.get(kind)) not in (None, base[kind]["name"]):
            del file[kind]
    table = merge(merge(merge(base, file), own), merge(options, over))
    _check_engine_has_a_name(table.get("engine"))
    return RunConfig.from_table(table)


def short_name(config: RunConfig) -> str:
    """The name of a configuration's problem in folder names."""
    problem = config.problem
    return problem.source.replace(":", "-") if isinstance(problem, OwnProblem) else problem.name


def known(kind: str, name: str, names: Collection[str]) -> None:
    """Raise unless a name is known."""
    if name not in names:
        raise SettingsError(f"{kind} {name!r} is not known{suggestion(name, names)}")


def settings(sets: Sequence[str]) -> Table:
    """Merge all --set KEY=VALUE into one table."""
    table: Table = {}
    for text in sets:
        table = merge(table, _assignment(text))
    return table


def different(option: str, text: str) -> list[str]:
    """Parse an option of comma-separated words; they must be non-empty and different. A list in brackets is one word.

    >>> different("--methods", "fedavg, fedcmoo+decay=[50,100]")
    ['fedavg', 'fedcmoo+decay=[50,100]']
    """
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", text)]
    if "" in words:
        raise SettingsError(f"{option} must be one or several words separated by commas, but got {text!r}")
    for word in words:
        if words.count(word) > 1:
            raise SettingsError(f"{option} must be different, but {word!r} occurs more than once")
    return words


def variant(text: str) -> tuple[str, list[str], float | None]:
    """Parse a method with settings: return its name, the settings for --set, and the upload.

    >>> variant("fedcmoo+trips=1+upload=0.02")
    ('fedcmoo', ['method.trips=1'], 0.02)
    """
    name, *own = text.split("+")
    uploads = [setting.removeprefix("upload=") for setting in own if setting.startswith("upload=")]
    sets = [f"method.{setting}" for setting in own if not setting.startswith("upload=")]
    return name, sets, numbers("upload", uploads[-1], float)[0] if uploads else None


def within(config: RunConfig, upload: float | None) -> RunConfig:
    """The configuration with this whole upload of a client and round; None for no change."""
    return config if upload is None else replace(config, method=config.method.within(upload))


def numbers(option: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """Parse an option of comma-separated numbers; `kind` parses one of them."""
    words = different(option, text)
    try:
        return [kind(word) for word in words]
    except ValueError:
        whole = "whole " if kind is int else ""
        raise SettingsError(f"{option} must be {whole}numbers separated by commas, but got {text!r}") from None


def new_folder(chosen: Path | None, name: str) -> Path:
    """The folder for a new run: the chosen one, which must not hold a run yet, or a new one under runs/."""
    if chosen is not None:
        if read_history(chosen / HISTORY):
            raise SettingsError(f"{chosen} already holds a run: fedcmoo resume {chosen}, or choose another --out")
        return chosen
    folder, n = Path("runs") / name, 1
    while folder.exists():
        n += 1
        folder = Path("runs") / f"{name}-{n}"
    return folder


def _name(value: Any) -> str | None:
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def _check_engine_has_a_name(engine: Any) -> None:
    """Raise if there are engine settings without an engine's name."""
    if isinstance(engine, Mapping) and "name" not in engine:
        fitting = [name for name, cls in ENGINES.items() if engine.keys() <= defaults(cls).keys()]
        raise SettingsError(
            f"engine must have a name beside its settings {', '.join(engine)}: "
            f"add --engine {' or --engine '.join(fitting or ENGINES)}"
        )


def _assignment(text: str) -> Table:
    """Parse `method.client_lr=0.5` into a table; the value is read as TOML, or else as plain text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set takes KEY=VALUE, but got {text!r}")
    result: Any = value
    with suppress(tomllib.TOMLDecodeError):
        result = tomllib.loads(f"value = {value}")["value"]
    for part in reversed(key.split(".")):
        result = {part: result}
    table: Table = result
    return table
