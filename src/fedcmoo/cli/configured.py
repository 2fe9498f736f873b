"""The options from which commands resolve a configuration, declared once for all commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedcmoo.cli.options import ConfigFile, DataFolder, EngineName, MethodName, ProblemName, Rounds, Seed, Set, Small
from fedcmoo.settings import Table

if TYPE_CHECKING:
    from fedcmoo.config import RunConfig


def given(**options: Any) -> Table:
    """The options that were given."""
    return {key: value for key, value in options.items() if value is not None}


@dataclass(frozen=True)
class Options:
    """The options from which a configuration is resolved. A command has those that it names in `with_options`."""

    problem: ProblemName = None
    method: MethodName = None
    rounds: Rounds = None
    seed: Seed = None
    engine: EngineName = None
    config: ConfigFile = None
    sets: Set = None
    small: Small = False
    data: DataFolder = None

    def given(self) -> Table:
        """The settings of a run that were given as options of their own."""
        data = None if self.data is None else str(self.data)
        return given(rounds=self.rounds, seed=self.seed, engine=self.engine, data=data)

    def resolve(
        self,
        method: str | None = None,
        over: Mapping[str, Any] = MappingProxyType({}),
        sets: Sequence[str] = (),
        sweep: bool = False,
    ) -> RunConfig:
        """The configuration, for this method unless --method was given, with further settings and --set."""
        from fedcmoo.cli.resolving import resolve

        every = [*(self.sets or ()), *sets]
        over = {**self.given(), **over}
        return resolve(self.problem, self.method or method, self.config, self.small, every, over, sweep)


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options of these names; its first parameter is the `Options` with their values."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:
            command(Options(**{name: values.pop(name) for name in names}), **values)

        shared, own = (signature(f, eval_str=True).parameters for f in (Options, command))
        parameters = [*(shared[name] for name in names), *list(own.values())[1:]]
        keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        called.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
        return called

    return decorate
