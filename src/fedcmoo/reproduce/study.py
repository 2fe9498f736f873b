"""The scale of a reproduction, from which every target makes the configurations of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedcmoo.config import RunConfig, preset
from fedcmoo.experiments import PROBLEMS, ReadyProblem
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.methods import METHODS, FedCMOO, Method
from fedcmoo.reproduce.measuring import LocalProgress, MeasuredFedCMOOT
from fedcmoo.reproduce.valleys import Valleys
from fedcmoo.settings import Named, SettingsError, Table, flatten, from_table, merge, registered, suggestion
from fedcmoo.validation import at_least_one

SMALL_SEEDS = (0,)
FULL_SEEDS = (0, 1, 2)

AS_IN_THE_PAPER: Mapping[str, Table] = {
    "fedcmoo": {"gram": "two-way", "weights": "find-weights"},
    "fedcmoo-pref": {"gram": "two-way"},
    "local-progress": {"gram": "two-way", "weights": "find-weights"},
}
"""Settings of the paper's main experiments that differ from the library's defaults: two-way communication with
randomized SVD, at an upload of d (appendix B), instead of the sketch, and FindWeights instead of AtLeastEqual."""

NOT_SCALE = ("seed", "data", "checkpoint_every", "evaluate_every")
"""Settings in which runs of the same scale may differ."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig(RunConfig):
    """A run configuration that also knows the problem and the methods used only for measurements."""

    problem: Named[ReadyProblem] = registered(TwoDigits(), {**PROBLEMS, Valleys.name: Valleys})
    method: Named[Method] = registered(
        FedCMOO(), {**METHODS, "local-progress": LocalProgress, "fedcmoo-t-measured": MeasuredFedCMOOT}
    )


@dataclass(frozen=True, kw_only=True)
class Study:
    """The scale of a reproduction.

    Args:
        full: whether to use the paper's scale, or else one that two cores finish in minutes.
        rounds: the number of rounds of every run; None for the presets'.
        seeds: the seeds; None for one seed at small scale and three at full scale.
        rounds_of, seeds_of: rounds and seeds by problem, which override these.
        data: the data folder.
        sets: settings of every run, unless a target overrides them.
    """

    full: bool = False
    rounds: int | None = None
    seeds: tuple[int, ...] | None = None
    rounds_of: Mapping[str, int] = field(default_factory=dict)
    seeds_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    data: str | None = None
    sets: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rounds in (self.rounds, *self.rounds_of.values()):
            at_least_one(rounds=rounds)
        for seeds in (self.seeds, *self.seeds_of.values()):
            if seeds is not None and (not seeds or len(set(seeds)) < len(seeds)):
                raise ValueError(f"seeds must be one or several different numbers, but got {list(seeds)}")
        known = (*PROBLEMS, Valleys.name)
        for problem in (*self.rounds_of, *self.seeds_of):
            if problem not in known:
                raise SettingsError(f"problem {problem!r} is not known{suggestion(problem, known)}")

    def seeds_for(self, problem: str) -> tuple[int, ...]:
        """The seeds of a problem's runs."""
        return self.seeds_of.get(problem) or self.seeds or (FULL_SEEDS if self.full else SMALL_SEEDS)

    def rounds_for(self, problem: str) -> int | None:
        """The rounds of a problem's runs; None for the preset's."""
        return self.rounds_of.get(problem, self.rounds)

    def configs(self, problem: str, method: str, over: Mapping[str, Any] | None = None) -> list[StudyConfig]:
        """One configuration for each seed: the preset's, as in the paper, with a target's own settings over it."""
        base = preset(problem, method, small=not self.full)
        table = merge(base, {"method": AS_IN_THE_PAPER.get(method, {})})
        table = merge(merge(table, self.sets), over or {})
        given = {"rounds": self.rounds_for(problem), "data": self.data}
        table = merge(table, {name: value for name, value in given.items() if value is not None})
        return [from_table(StudyConfig, {**table, "seed": seed}) for seed in self.seeds_for(problem)]

    def methods(
        self, problem: str, methods: Sequence[str], over: Mapping[str, Any] | None = None
    ) -> dict[str, list[StudyConfig]]:
        """Configurations by the methods' titles."""
        return {METHODS[method].label(): self.configs(problem, method, over) for method in methods}


def falls_short(config: StudyConfig, full: StudyConfig, rounds: int | None = None) -> bool:
    """Whether a configuration has fewer than `rounds` rounds (by default those of full scale), or differs from that of
    full scale in another setting."""
    return config.rounds < min(rounds or full.rounds, full.rounds) or bool(set(_differences(config, full)) - {"rounds"})


def scale_line(
    plan: Mapping[str, Sequence[StudyConfig]],
    full: Mapping[str, Sequence[StudyConfig]],
    left_out: Sequence[str],
    is_full: bool,
) -> str:
    """A note on how the scale of some runs falls short of the paper's.

    Args:
        plan: by part of a target (a problem, say), the seeds of one of its runs.
        full: the same at full scale.
        left_out: runs of the full scale that were not made.
        is_full: whether all of them have full scale.
    """
    parts: dict[str, list[str]] = {}
    for part, configs in plan.items():
        seeds = f"{len(configs)} seed{'s' * (len(configs) > 1)}"
        differences = _differences(configs[0], full[part][0])
        text = ", ".join([seeds, *(f"{name} {value}" for name, value in differences.items())])
        parts.setdefault(text, []).append(part)
    head = "full scale" if is_full else "small scale (in brackets, full scale)"
    several = len(parts) > 1
    texts = [(f"{', '.join(names)}: " if several else "") + text for text, names in parts.items()]
    return f"{head}: " + "; ".join([*texts, *([f"left out: {', '.join(left_out)}"] if left_out else [])])


def _differences(config: StudyConfig, full: StudyConfig) -> dict[str, str]:
    own, other = flatten(config.to_table()), flatten(full.to_table())
    names = [name for name in own if name not in NOT_SCALE and own[name] != other.get(name)]
    return {
        name.split(".")[-1]: f"{own[name]} ({other.get(name, 'none')})"
        for name in sorted(names, key=lambda name: name != "rounds")
        if not name.startswith("engine.")
    }
