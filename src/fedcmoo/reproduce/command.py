"""`reproduce`: make the targets one by one; a failure does not stop the others."""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedcmoo.data.catalogue import missing_data
from fedcmoo.data.folder import data_folder
from fedcmoo.engines.pool import usable_cores
from fedcmoo.reproduce.claims import Claim, judge_target
from fedcmoo.reproduce.estimate import estimate
from fedcmoo.reproduce.outcome import Made, Outcome
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.summary import PAGE, write_interactive, write_summary
from fedcmoo.reproduce.targets import TARGETS, PaperTarget
from fedcmoo.runs import Runs
from fedcmoo.settings import SettingsError, suggestion, write_toml

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedRun:
    """A run that some targets need.

    Attributes:
        name: what it is.
        targets: the targets that need it.
        seed: its seed.
        rounds: the number of rounds when finished.
        done: the number of rounds already done.
        seconds: the estimated time of the remaining rounds.
        missing: the data sets that it needs and that are missing.
        impossible: why it cannot be made, if that is known in advance.
    """

    name: str
    targets: tuple[str, ...]
    seed: int = 0
    rounds: int = 0
    done: int = 0
    seconds: float = 0.0
    missing: tuple[str, ...] = ()
    impossible: str = ""


def choose(names: Iterable[str]) -> list[PaperTarget]:
    """The targets of these names; "all" is all of them."""
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name != "all" and name not in TARGETS:
            raise SettingsError(f"target {name!r} is not known{suggestion(name, [*TARGETS, 'all'])}")
    return [target() for name, target in TARGETS.items() if name in chosen or "all" in chosen]


def needed_runs(
    targets: Iterable[PaperTarget], study: Study, only: Sequence[str] | None = None
) -> dict[str, StudyConfig]:
    """The runs that the targets need, by name, without those that cannot be planned.

    Args:
        targets: the targets.
        study: at what scale.
        only: if given, only the runs whose names contain one of these texts; there must be at least one.
    """
    errors: list[tuple[str, str, ValueError]] = []
    found = {run_name(*run): run[-1] for run in _runs_of(targets, study, errors)}
    if not only:
        return found
    chosen = {name: config for name, config in found.items() if is_named(name, only)}
    if not chosen and errors:
        raise errors[0][2]
    if not chosen:
        example = next(iter(found), "")
        raise ValueError(f"only must be part of a run's name, such as {example!r}, but got {' and '.join(only)}")
    return chosen


def _runs_of(
    targets: Iterable[PaperTarget], study: Study, errors: list[tuple[str, str, ValueError]]
) -> Iterator[tuple[str, str, str, StudyConfig]]:
    """The targets' runs: target, part, label and configuration. Adds what cannot be planned to `errors`."""
    for target in targets:
        for part in target.parts:
            try:
                plan = target.plan(study, part)
            except ValueError as error:
                errors.append((target.name, part, error))
                continue
            for label, configs in plan.items():
                for config in configs:
                    yield target.name, part, label, config


def with_data(configs: Mapping[str, StudyConfig]) -> dict[str, StudyConfig]:
    """The runs whose data are there."""
    return {name: c for name, c in configs.items() if not missing_data(c.problem.name, c.data)}


def run_name(target: str, part: str, label: str, config: StudyConfig) -> str:
    """The name of a target's run."""
    return f"{target}: {part} {label}, seed {config.seed}"


def is_named(name: str, only: Sequence[str]) -> bool:
    """Whether a name contains one of some texts, ignoring case."""
    return any(text.casefold() in name.casefold() for text in only)


def make_each(configs: Mapping[str, StudyConfig], runs: Runs) -> dict[str, str]:
    """Make runs one after the other, and continue after failures; returns the errors by name."""
    failures = {}
    for name, config in configs.items():
        try:
            runs.get(config)
        except Exception as error:
            log.debug("%s failed", name, exc_info=True)
            failures[name] = describe(error)
    return failures


def planned(
    targets: Sequence[PaperTarget], study: Study, runs: Runs, only: Sequence[str] | None = None
) -> list[PlannedRun]:
    """The runs that the targets need, each once, and the parts that no run can be planned for; with `only`, the runs
    of `needed_runs`."""
    found: dict[Path, PlannedRun] = {}
    errors: list[tuple[str, str, ValueError]] = []
    for target, part, label, config in _runs_of(targets, study, errors):
        if only and not is_named(run_name(target, part, label, config), only):
            continue
        place = runs.place(config)
        if place in found:
            before = found[place].targets
            found[place] = replace(found[place], targets=tuple(dict.fromkeys((*before, target))))
            continue
        seconds = estimate(config, runs, usable_cores())
        missing = missing_data(config.problem.name, config.data) if seconds else ()  # a finished run needs none
        seconds = 0.0 if missing else seconds
        done = runs.rounds_done(config)
        found[place] = PlannedRun(f"{part} {label}", (target,), config.seed, config.rounds, done, seconds, missing)
    impossible = [] if only else errors
    return [
        *found.values(),
        *(PlannedRun(part, (name,), impossible=describe(error)) for name, part, error in impossible),
    ]


def reproduce(
    targets: Sequence[PaperTarget], study: Study, out: Path, runs: Runs, say: Callable[[str], None] = log.info
) -> dict[str, str]:
    """Make the targets, and after each of them update the summary and the page of the whole folder.

    Args:
        targets: what to make.
        study: at what scale.
        out: the folder of tables, figures and the page.
        runs: the runs.
        say: called with progress messages.

    Returns:
        What failed and why, by target and part; empty if all went well.
    """
    failures: dict[str, str] = {}
    for target in targets:
        say(f"{target.name}: {target.title}")
        try:
            outcome = make(target, study, runs, say)
            failures |= {f"{target.name} {part}": why for part, why in outcome.failures.items()}
            place = Outcome.place(out, target.name)
            if not outcome.is_empty or not place.exists():  # results of an earlier call are kept
                if outcome.failures and place.exists() and not Outcome.load(place).failures:
                    before = place.with_name(f"{place.name}.before")
                    shutil.copyfile(place, before)
                    say(f"{target.name}: not all of it could be made; what was there before is in {before.name}")
                outcome.save(out)
            write_summary(out)
        except Exception as error:
            log.debug("%s failed", target.name, exc_info=True)
            failures[target.name] = describe(error)
        try:
            write_interactive(out)
        except Exception as error:  # e.g. without plotly; tables and figures are already written
            log.debug("%s failed", PAGE, exc_info=True)
            failures[PAGE] = describe(error)
    return failures


def make(target: PaperTarget, study: Study, runs: Runs, say: Callable[[str], None]) -> Outcome:
    """Make one target: its runs, then its results."""
    results, failures = {}, {}
    for part in target.parts:
        try:
            results[part] = target.results(study, part, runs)
        except Exception as error:
            log.debug("%s %s failed", target.name, part, exc_info=True)
            failures[part] = _without_places(describe(error), study, runs)
            say(f"{target.name} {part} failed: {describe(error)}")
    scale = target.scale(study, results) + target.not_measured(study, results) if results else ""
    made = target.make(study, results, scale) if results else Made()
    full = [part for part in results if target.is_full(study, part)]
    configurations = {
        f"{part}: {label}": write_toml(replace(configs[0], data=None).to_table())
        for part in results
        for label, configs in target.plan(study, part).items()
    }
    verdicts = judge_target(target.name, made.measured, lambda claim: suffices(target, study, claim, results))
    return Outcome(target.name, target.title, scale, full, made.tables, made.charts, verdicts, failures, configurations)


def suffices(target: PaperTarget, study: Study, claim: Claim, made: Iterable[str]) -> bool:
    """Whether the runs of a claim's part, or of all parts made, have the scale that a claim about the end needs."""
    return all(target.is_full(study, part, claim.rounds) for part in ([claim.part] if claim.part else made))


def _without_places(text: str, study: Study, runs: Runs) -> str:
    """A message without the folders of this machine, so that it can be published."""
    for place, name in ((data_folder(study.data), "DATA"), (runs.folder, "RUNS"), (runs.published, "RUNS")):
        text = text.replace(f"{place}{os.sep}", f"{name}{os.sep}")
    return text


def describe(error: Exception) -> str:
    """An error message on one line."""
    text = " ".join(str(error).split()) or "no reason given"
    return (
        text
        if isinstance(error, (ValueError, OSError, ImportError, RuntimeError))
        else f"{type(error).__name__}: {text}"
    )
