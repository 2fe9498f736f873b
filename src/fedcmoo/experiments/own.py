"""User-defined problems, named by their module so that the command line can run them."""

import importlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedcmoo.data.partition import Partition
from fedcmoo.data.skew import Skew, measure_skew
from fedcmoo.problem import Problem
from fedcmoo.settings import SettingsError


@dataclass(frozen=True, kw_only=True)
class OwnProblem:
    """A `Problem` defined in a user's module, or returned by a function there.

    The module is one that Python can import in the working directory: `tasks:problem` is `problem` in `tasks.py`. A
    function that takes an argument gets the seed, so that it can seed the initial model and the split of the data.

    Args:
        source: MODULE:NAME.
    """

    name: ClassVar[str] = "own"
    title: ClassVar[str] = "a problem of your own: fedcmoo run MODULE:NAME"

    source: str = "tasks:problem"

    def __post_init__(self) -> None:
        if not all(self.source.partition(":")):
            raise ValueError(f"a problem of your own must be given as MODULE:NAME, but got {self.source!r}")

    def skew(self, seed: int, data: Path | None = None) -> Skew:
        """The clients' sizes only, since the labels are unknown."""
        problem = self.build(seed, data)
        ends = np.cumsum([len(problem.client(i)) for i in range(problem.N)])
        return measure_skew(Partition(np.split(np.arange(ends[-1]), ends[:-1]), int(ends[-1])), {})

    def build(self, seed: int, data: Path | None = None) -> Problem:
        """Import the problem, or call the function that returns it."""
        found = self._find()
        if callable(found):
            found = found(seed) if inspect.signature(found).parameters else found()
        if not isinstance(found, Problem):
            raise SettingsError(f"{self.source} must be or return a fedcmoo.Problem, but is {type(found).__name__}")
        return found

    def _find(self) -> Any:
        module, _, name = self.source.partition(":")
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != module.split(".")[0]:
                raise
            raise SettingsError(f"{module} must be a module in {Path.cwd()} or an installed one, but is none") from None
        except AttributeError:
            raise SettingsError(f"the module {module} must define {name!r}, but does not") from None
