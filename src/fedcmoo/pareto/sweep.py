"""A sweep: one run of FedCMOO-Pref for each preference, with the same data, seed and workers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from fedcmoo.acceptance import ACCEPTANCES, Acceptance
from fedcmoo.callbacks import Callback
from fedcmoo.contributions import Stage
from fedcmoo.download import Download
from fedcmoo.engines import Engine
from fedcmoo.evaluation import evaluate
from fedcmoo.failures import FAILURE_RULES, FailureRule
from fedcmoo.files import file_name, write_json
from fedcmoo.history import Record, read_history
from fedcmoo.methods import METHODS, FedAvg, FedCMOOPref
from fedcmoo.methods.base import Method, WeightedLoss
from fedcmoo.optional import require
from fedcmoo.pareto.front import Front
from fedcmoo.pareto.point import Point
from fedcmoo.pareto.preferences import evenly_spread, ratio_text
from fedcmoo.problem import Problem
from fedcmoo.randomness import derive
from fedcmoo.result import Result
from fedcmoo.run_folder import holds_run
from fedcmoo.settings import object_of
from fedcmoo.training import cohort_size, fit
from fedcmoo.validation import at_least_one
from fedcmoo.weights import check_preference

SETTINGS = "sweep.json"


def sweep(
    problem: Problem,
    preferences: int | Sequence[Sequence[float]] = 5,
    rounds: int = 100,
    *,
    folder: str | Path,
    method: FedCMOOPref | str = "fedcmoo-pref",
    single: bool = False,
    fedavg: bool = False,
    clients_per_round: int | None = None,
    seed: int = 0,
    engine: Engine | str | None = None,
    evaluate_every: int = 5,
    callbacks: Callable[[str], Sequence[Callback]] = lambda label: (),
    checkpoint_every: int = 10,
    stages: Sequence[Stage] = (),
    acceptance: Acceptance | str = "bounded",
    on_failure: FailureRule | str = "stop",
    download: Download = "full",
) -> Front:
    """Train a model for each of many preferences, and return the resulting front.

    Repeating the call continues an interrupted sweep; finished points are only read. Further preferences, or more
    rounds, extend it. All runs have the same data and seed, and share a pool's workers one after the other.

    Args:
        problem: model, objectives and data; the front's losses are measured on its test or validation data.
        preferences: for example [(1, 2), (1, 1), (2, 1)]; or a number of evenly spread ones.
        rounds: T, the number of rounds of each run.
        folder: the sweep's folder; it contains a run's folder for each point.
        method: FedCMOOPref with its settings; its preference is replaced.
        single: also train each objective alone (FedAvg with all weight on it): the minima that the figure shows.
        fedavg: also run FedAvg on the average loss.
        clients_per_round, seed, engine, evaluate_every, checkpoint_every: as in `fit`, for each run.
        callbacks: a function that returns a run's callbacks, given its label.
        stages, acceptance, on_failure, download: as in `fit`, for each run.

    Returns:
        The front, which is also saved in the folder: front.json, front.png and the models.
    """
    require("moocore", extra="pareto")  # checked before hours of work, not after
    if problem.test is None and problem.validation is None:
        raise ValueError("a sweep needs test or validation data, whose losses make the front, but the problem has none")
    wanted = evenly_spread(preferences, problem.M) if isinstance(preferences, int) else preferences
    chosen = object_of(method, METHODS, "method")
    if not isinstance(chosen, FedCMOOPref):
        raise TypeError(f"a sweep needs a FedCMOOPref, whose preference it can set, but got {type(chosen).__name__}")
    asked = [tuple(preference) for preference in wanted]
    _check_preferences(asked, problem.M)
    at_least_one(rounds=rounds, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    cohort_size(clients_per_round, problem)
    place = Path(folder)
    train = partial(
        fit,
        problem,
        rounds=rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        engine=engine,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        stages=tuple(stages),
        acceptance=object_of(acceptance, ACCEPTANCES, "acceptance"),
        on_failure=object_of(on_failure, FAILURE_RULES, "on_failure"),
        download=download,
    )
    runs = _Runs(problem, place, rounds, callbacks, train)
    runs.claim_folder(chosen)
    points = [runs.point(f"points/{_place(r)}", replace(chosen, preference=r), ratio_text(r), r) for r in asked]
    names = tuple(objective.name for objective in problem.objectives)
    alone = [
        runs.point(f"single/{file_name(name)}", _baseline(chosen, k, problem.M), f"{name} alone")
        for k, name in enumerate(names if single else ())
    ]
    average = runs.point("baselines/fedavg", _baseline(chosen, None, problem.M), "FedAvg") if fedavg else None
    reached = [point.losses for point in (*points, *([average] if average else []))]
    front = Front(problem.name, names, tuple(points), _reference(problem, reached), tuple(alone), average)
    front.save(place)
    return front


@dataclass(frozen=True)
class _Runs:
    """The runs of a sweep; `train` is `fit` with the settings that all of them share."""

    problem: Problem
    folder: Path
    rounds: int
    callbacks: Callable[[str], Sequence[Callback]]
    train: partial[Result]

    def claim_folder(self, method: FedCMOOPref) -> None:
        """Claim the folder for this sweep, or check that it belongs to it; only the number of rounds may grow."""
        given = self.train.keywords
        settings: dict[str, Any] = {
            "problem": self.problem.name,
            "objectives": [objective.name for objective in self.problem.objectives],
            "clients": self.problem.N,
            "method": repr(replace(method, preference=None)),
            "rounds": self.rounds,
            **{name: given[name] for name in ("clients_per_round", "seed", "download")},
            **{name: repr(given[name]) for name in ("stages", "acceptance", "on_failure")},
        }
        path = self.folder / SETTINGS
        before = json.loads(path.read_text()) if path.exists() else settings
        for name, value in settings.items():
            if before.get(name) != value and not (name == "rounds" and self.rounds > before[name]):
                raise ValueError(
                    f"{self.folder} holds another sweep, with {name} = {before.get(name)!r}, but now it is {value!r}: "
                    "choose another folder"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, settings)

    def point(self, place: str, method: Method, label: str, preference: tuple[float, ...] = ()) -> Point:
        """The point of one run, which is read if finished, else run or continued."""
        at = self.folder / place
        history: Sequence[Record] = read_history(at / "history.jsonl")
        if not _is_finished(at, history, self.rounds):
            history = self.train(
                method=method, callbacks=self.callbacks(label), folder=at, resume=holds_run(at)
            ).history
        scores = next(record.scores for record in reversed(history) if record.scores)
        return Point(label, scores, preference, at)


def _is_finished(run: Path, history: Sequence[Record], rounds: int) -> bool:
    """Whether a run has all its rounds and wrote its model after the last one. (While a run is being extended, its
    model is still that of fewer rounds.)"""
    model, checkpoint = run / "model.safetensors", run / "checkpoint.safetensors"
    if len(history) < rounds or not model.exists():
        return False
    return not checkpoint.exists() or model.stat().st_mtime_ns >= checkpoint.stat().st_mtime_ns


def _check_preferences(preferences: Sequence[tuple[float, ...]], M: int) -> None:
    """Raise unless all are valid preferences and no two are equivalent, as 1:1 and 2:2 are."""
    if not preferences:
        raise ValueError("preferences must be at least one, such as [(1, 2), (2, 1)], but got none")
    found: dict[tuple[float, ...], str] = {}
    for preference in preferences:
        check_preference(preference, M)
        text = ratio_text(preference)
        shares = tuple(round(part / sum(preference), 12) for part in preference)
        if shares in found:
            raise ValueError(f"preferences must be different, but {text} asks for the same as {found[shares]}")
        found[shares] = text


def _baseline(method: WeightedLoss, only: int | None, M: int) -> FedAvg:
    """FedAvg with the local training of another method, on one objective or on the average of all."""
    common = {f.name: getattr(method, f.name) for f in fields(WeightedLoss)}
    weights = None if only is None else tuple(float(k == only) for k in range(M))
    return FedAvg(**common, weights=weights)


def _reference(problem: Problem, reached: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The reference losses: a tenth above the largest of the untrained model's and of those reached.

    Training may raise a loss: an untrained model treats all groups alike, so fairness is best before training.
    """
    data = problem.validation if problem.test is None else problem.test
    model = problem.flat_model()
    totals, counts = evaluate(problem, model, data, 0, len(data))
    untrained = (totals / counts)[: problem.M].tolist()
    return tuple(1.1 * max(losses) for losses in zip(untrained, *reached, strict=True))


def _place(preference: tuple[float, ...]) -> str:
    """The name of a preference's folder: 2_1 for 2:1, and 1x39_40 for thirty-nine ones before a 40."""
    parts: list[str] = []
    for number, same in groupby(f"{number:.12g}" for number in preference):
        n = len(list(same))
        parts += [number] * n if n < 4 else [f"{number}x{n}"]
    text = "_".join(parts)
    return text if len(text) < 100 else f"{text[:80]}-{derive(0, text):x}"
