"""One configuration from presets, files and options, and where runs go."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedcmoo.cli.options import err
from fedcmoo.config import RunConfig, preset, variants
from fedcmoo.engines import ENGINES
from fedcmoo.experiments import PROBLEMS
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.history import read_history
from fedcmoo.methods import METHODS
from fedcmoo.run import HISTORY
from fedcmoo.run_folder import NEWEST, PREVIOUS
from fedcmoo.settings import SettingsError, Table, defaults, merge, read_toml, suggestion


def resolve(
    problem: str | None,
    method: str | None,
    config: Path | None = None,
    small: bool = False,
    sets: Sequence[str] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    sweep: bool = False,
) -> RunConfig:
    """One configuration from, in this order: the problem's preset, the TOML file, the options, --set.

    The file's settings of another problem or method than the one chosen are none of its own, and are left out.
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
    """What the folders of a configuration's problem are called."""
    problem = config.problem
    return problem.source.replace(":", "-") if isinstance(problem, OwnProblem) else problem.name


def known(kind: str, name: str, names: Collection[str]) -> None:
    """Raise unless a name is known."""
    if name not in names:
        raise SettingsError(f"{kind} {name!r} is not known{suggestion(name, names)}")


def settings(sets: Sequence[str]) -> Table:
    """The table that all --set KEY=VALUE together stand for."""
    table: Table = {}
    for text in sets:
        table = merge(table, _assignment(text))
    return table


def given(**options: Any) -> Table:
    """The options that were given."""
    return {key: value for key, value in options.items() if value is not None}


def different(option: str, text: str) -> list[str]:
    """The words of an option that takes several, separated by commas: none of them empty, none twice."""
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise SettingsError(f"{option} must be one or several words separated by commas, but got {text!r}")
    for word in words:
        if words.count(word) > 1:
            raise SettingsError(f"{option} must be different, but {word!r} occurs more than once")
    return words


def variant(text: str) -> tuple[str, str, list[str]]:
    """A method with settings of its own: the text as a label, the method's name, and the settings as --set takes them.

    >>> variant("fedcmoo+trips=1")
    ('fedcmoo+trips=1', 'fedcmoo', ['method.trips=1'])
    """
    name, *own = text.split("+")
    return text, name, [f"method.{setting}" for setting in own]


def seed_numbers(text: str) -> list[int]:
    """The seeds of an option that takes several."""
    words = different("--seeds", text)
    try:
        return [int(seed) for seed in words]
    except ValueError:
        raise SettingsError(f"--seeds must be whole numbers separated by commas, but got {text!r}") from None


def numbers(option: str, text: str) -> list[float]:
    """The numbers of an option that takes several, separated by commas."""
    try:
        return [float(word) for word in different(option, text)]
    except SettingsError:
        raise
    except ValueError:
        raise SettingsError(f"{option} must be numbers separated by commas, but got {text!r}") from None


def warn_of_no_checkpoint(folder: Path) -> None:
    """Print a notice if a run to resume has rounds but no checkpoint."""
    if read_history(folder / HISTORY) and not any((folder / name).exists() for name in (NEWEST, PREVIOUS)):
        err.print(f"{folder} has no checkpoint yet: starting again from round 1", soft_wrap=True)


def new_folder(chosen: Path | None, name: str) -> Path:
    """The folder for a new run: the chosen one if it holds no run yet, else a fresh one under runs/."""
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
    """Settings of an engine alone do not choose one."""
    if isinstance(engine, Mapping) and "name" not in engine:
        fitting = [name for name, cls in ENGINES.items() if engine.keys() <= defaults(cls).keys()]
        raise SettingsError(
            f"engine must have a name beside its settings {', '.join(engine)}: "
            f"add --engine {' or --engine '.join(fitting or ENGINES)}"
        )


def _assignment(text: str) -> Table:
    """`method.client_lr=0.5` as a table; the value is read as TOML, and as plain text if it is not."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set takes KEY=VALUE, but got {text!r}")
    try:
        table: Table = {"value": tomllib.loads(f"value = {value}")["value"]}
    except tomllib.TOMLDecodeError:
        table = {"value": value}
    result: Any = table["value"]
    for part in reversed(key.split(".")):
        result = {part: result}
    assert isinstance(result, dict)
    return result
