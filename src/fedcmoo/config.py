"""The configuration of a run: all settings, which `fedcmoo run` resolves, saves with the results and can run again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fedcmoo.acceptance import ACCEPTANCES, Acceptance
from fedcmoo.callbacks import Callback
from fedcmoo.contributions import Stage
from fedcmoo.download import Download, check_download
from fedcmoo.engines import ENGINES, Engine
from fedcmoo.engines.base import numerics
from fedcmoo.experiments import PROBLEMS, ReadyProblem
from fedcmoo.experiments.own import OwnProblem
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.failures import FAILURE_RULES, FailureRule, Stop
from fedcmoo.methods import METHODS, FedCMOO, Method
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcmoo.privacy.robust import ROBUST, RobustMean
from fedcmoo.privacy.secure import SECURE, Secure
from fedcmoo.problem import Problem
from fedcmoo.result import Result
from fedcmoo.run import CONFIG, NOT_RESULTS
from fedcmoo.settings import (
    Named,
    SettingsError,
    Table,
    from_table,
    merge,
    read_toml,
    registered,
    resolve_names,
    to_table,
)
from fedcmoo.stages import STAGES
from fedcmoo.training import cohort_size, fit
from fedcmoo.validation import at_least_one

PRESETS = resources.files("fedcmoo.experiments") / "presets"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings that determine what a run computes.

    Args:
        problem: a ready-made problem and its settings.
        method: a method and its settings.
        engine: where clients run; None for a choice based on the machine. Of its settings, threads, device and
            precision change the results.
        acceptance: the rule by which the model of a round replaces the previous one.
        on_failure: what to do about clients that fail.
        rounds, clients_per_round, seed, evaluate_every, checkpoint_every: as in `fit`.
        stage: a stage of the channel, in front of those of the next four settings; None for none.
        clip: the bound on what one client contributes (see `Clip`); None for no bound.
        robust: a mean of replies that a few hostile clients cannot move far; None for the plain one.
        privacy: differential privacy and its settings; None for none.
        secure: secure aggregation and its settings; None for none.
        download: how the model is sent to clients: full, bfloat16 or 8-bit.
        data: the data folder; None for the environment's FEDCMOO_DATA or the user's cache.

    >>> config = RunConfig.from_table({"rounds": 3, "method": {"name": "fsmgda", "client_lr": 0.1}})
    >>> config.method.client_lr, RunConfig.from_table(config.to_table()) == config
    (0.1, True)
    """

    problem: Named[ReadyProblem] = registered(TwoDigits(), PROBLEMS)
    method: Named[Method] = registered(FedCMOO(), METHODS)
    engine: Named[Engine | None] = registered(None, ENGINES)
    acceptance: Named[Acceptance] = registered(Acceptance(), ACCEPTANCES)
    on_failure: Named[FailureRule] = registered(Stop(), FAILURE_RULES)
    rounds: int = 100
    clients_per_round: int | None = None
    seed: int = 0
    evaluate_every: int = 5
    checkpoint_every: int = 10
    stage: Named[Stage | None] = registered(None, STAGES)
    clip: float | None = None
    robust: Named[RobustMean | None] = registered(None, ROBUST)
    privacy: Named[DifferentialPrivacy | None] = registered(None, PRIVACY)
    secure: Named[Secure | None] = registered(None, SECURE)
    download: Download = "full"
    data: str | None = None

    def __post_init__(self) -> None:
        resolve_names(self)
        at_least_one(
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            evaluate_every=self.evaluate_every,
            checkpoint_every=self.checkpoint_every,
        )
        if self.clip is not None and self.privacy is not None:
            raise ValueError("clip is for runs without privacy, which has its own, but got both; set privacy.clip")
        check_download(self.download)
        self.stages  # noqa: B018 - an invalid bound is an error before work starts

    @property
    def stages(self) -> Sequence[Stage]:
        """The `stages` argument of `fit`."""
        clipping = None if self.clip is None else Clip(self.clip)
        every = (self.stage, clipping, self.robust, self.secure, self.privacy)
        return tuple(stage for stage in every if stage is not None)

    @property
    def beginning_suffices(self) -> bool:
        """Whether the first rounds of a longer run are those of this one. Privacy noise depends on all rounds."""
        return self.privacy is None

    @property
    def found_by_settings(self) -> bool:
        """Whether equal settings mean equal runs. The source of a user's problem may change, so `fit` compares them."""
        return not isinstance(self.problem, OwnProblem)

    @property
    def title(self) -> str:
        """The beginning of its folder's name in a store of runs."""
        table = self.to_table()
        return f"{table['problem']['name']}-{table['method']['name']}-seed{self.seed}"

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that `fit` and `sweep` share."""
        names = ("clients_per_round", "seed", "engine", "evaluate_every", "checkpoint_every", "stages")
        return {name: getattr(self, name) for name in (*names, "acceptance", "on_failure", "download")}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> RunConfig:
        """Create a configuration from a table, such as that of a TOML file."""
        return from_table(cls, table)

    def to_table(self) -> Table:
        """The table from which this configuration can be restored, including all defaults."""
        return to_table(self)

    def results(self) -> Table:
        """The settings that change what a run computes, not only where and how."""
        table = {key: value for key, value in self.to_table().items() if key not in NOT_RESULTS}
        return table | {"engine": numerics(self.engine)}

    def computes_the_same_as(self, other: RunConfig) -> bool:
        """Whether two configurations compute the same numbers; where and how may differ."""
        return self.results() == other.results()

    def build(self) -> Problem:
        """The problem with its data, distributed over clients by the seed."""
        return self.problem.build(self.seed, None if self.data is None else Path(self.data))

    def run(self, folder: Path | None = None, callbacks: Sequence[Callback] = (), resume: bool = False) -> Result:
        """Build the problem and train; with a folder, write configuration, history, model, curves and result to it."""
        problem = self.build()
        cohort_size(self.clients_per_round, problem)  # before there is a folder
        return fit(
            problem,
            self.method,
            self.rounds,
            callbacks=callbacks,
            folder=folder,
            resume=resume,
            config=self.to_table(),
            **self.options,
        )

    def execute(self, folder: Path, callbacks: Sequence[Callback], resume: bool) -> None:
        """Run it in a folder; subclasses measure more than a run."""
        self.run(folder, callbacks, resume)


def variants() -> dict[str, str]:
    """Presets of problems with settings other than their defaults: their names and descriptions."""
    tables = {file.name.removesuffix(".toml"): tomllib.loads(file.read_text()) for file in PRESETS.iterdir()}
    return {name: table["title"] for name, table in sorted(tables.items()) if "like" in table}


def preset(problem: str, method: str, small: bool = False, sweep: bool = False) -> Table:
    """The recommended settings for a problem and a method.

    They are in `experiments/presets/PROBLEM.toml`: [run] for the run, [sweep] for changes in the runs of a sweep of
    preferences, [problem], a table for each method, and the same under [small] for a scale that two CPU cores finish in
    minutes. A variant of a problem has a separate file that names the problem (`like`) and the changes.
    """
    file = PRESETS / f"{problem}.toml"
    table = tomllib.loads(file.read_text()) if file.is_file() else {}
    layers = [table, table.get("small", {})] if small else [table]
    result: Table = {"problem": {"name": problem}, "method": {"name": method}}
    if "like" in table:
        result = preset(table["like"], method, small, sweep)
    for layer in layers:
        result = merge(merge(result, layer.get("run", {})), layer.get("sweep", {}) if sweep else {})
        result = merge(result, {"problem": layer.get("problem", {}), "method": layer.get(method, {})})
    return result


def saved(folder: Path) -> RunConfig:
    """The configuration of a run that was saved in a folder."""
    table = read_toml(folder / CONFIG)
    name = table.get("problem", {}).get("name")
    if name not in PROBLEMS:
        raise SettingsError(
            f"{folder} holds a run of the problem {name!r}, which is not a ready-made one: continue it in Python "
            "with fit(..., resume=True)"
        )
    return RunConfig.from_table(table)
