"""A sweep over preferences: interrupted and gone on with, read back, picked from, drawn."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcmoo import Callback, fit
from fedcmoo.drift import FedCM
from fedcmoo.evaluation import evaluate
from fedcmoo.history import read_history
from fedcmoo.methods import FedAvg, FedCMOO, FedCMOOPref
from fedcmoo.metrics import hypervolume
from fedcmoo.parameters import FlatModel
from fedcmoo.pareto import Front, Point, evenly_spread, parse_ratio, pick, ratio_text, sweep
from fedcmoo.pareto.sweep import _place
from fedcmoo.privacy.clipping import Clip
from fedcmoo.problem import Problem
from fedcmoo.weights import FindWeightsPref
from tests.core.problems import classification, quadratics
from tests.core.runs import Interrupt

pytest.importorskip("moocore", reason="the extra pareto is not installed")

PREFERENCES = [(1, 3), (1, 1), (3, 1)]
METHOD = FedCMOOPref(client_lr=0.1, local_steps=2, batch_size=8, weights=FindWeightsPref(threshold=0.001))


def run(folder: Path, rounds: int = 6, interrupt: tuple[str, int] | None = None, baselines: bool = False) -> Front:
    def callbacks(label: str) -> list[Callback]:
        return [Interrupt(interrupt[1])] if interrupt is not None and label == interrupt[0] else []

    return sweep(
        classification(),
        PREFERENCES,
        rounds,
        folder=folder,
        method=METHOD,
        callbacks=callbacks,
        checkpoint_every=2,
        single=baselines,
        fedavg=baselines,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Front]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, baselines=True)


def test_an_interrupted_sweep_goes_on_to_the_same_front(whole: tuple[Path, Front], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupt=("1:1", 3))
    assert len(read_history(tmp_path / "points/1_3/history.jsonl")) == 6
    assert len(read_history(tmp_path / "points/1_1/history.jsonl")) == 3
    assert not (tmp_path / "points/3_1").exists()
    finished = (tmp_path / "points/1_3/history.jsonl").stat().st_mtime_ns
    front = run(tmp_path)
    assert [point.scores for point in front.points] == [point.scores for point in whole[1].points]
    assert (tmp_path / "points/1_3/history.jsonl").stat().st_mtime_ns == finished  # only read
    for place in ("points/1_1", "points/3_1"):
        ours, theirs = (read_history(f / place / "history.jsonl") for f in (tmp_path, whole[0]))
        assert [r.without_time() for r in ours] == [r.without_time() for r in theirs]


def test_more_rounds_add_to_what_is_there(tmp_path: Path) -> None:
    run(tmp_path, rounds=4)
    run(tmp_path, rounds=6)
    assert len(read_history(tmp_path / "points/1_1/history.jsonl")) == 6
    with pytest.raises(ValueError, match="holds another sweep, with rounds = 6, but now it is 4"):
        run(tmp_path, rounds=4)


def test_while_a_sweep_is_extended_its_earlier_models_stay(tmp_path: Path) -> None:
    before = run(tmp_path, rounds=4)
    models = {point.label: (point.folder / "model.safetensors").read_bytes() for point in before.points}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, rounds=6, interrupt=("1:1", 5))
    assert (tmp_path / "points/1_1/model.safetensors").read_bytes() == models["1:1"]
    after = run(tmp_path, rounds=6)
    assert all((point.folder / "model.safetensors").read_bytes() != models[point.label] for point in after.points)


def test_the_folder_of_another_sweep_is_refused(whole: tuple[Path, Front]) -> None:
    with pytest.raises(ValueError, match="holds another sweep, with seed = 0, but now it is 1: choose another folder"):
        sweep(classification(), PREFERENCES, 6, folder=whole[0], method=METHOD, seed=1)


def test_points_are_runs_of_fedcmoo_pref(whole: tuple[Path, Front]) -> None:
    method = FedCMOOPref(client_lr=0.1, local_steps=2, batch_size=8, weights=METHOD.weights, preference=(3, 1))
    assert fit(classification(), method, 6).scores == whole[1].points[2].scores


def test_all_runs_have_the_settings_of_the_sweep(tmp_path: Path) -> None:
    stages = [Clip(0.01)]
    method = replace(METHOD, drift=FedCM())
    problem = quadratics()
    front = sweep(problem, [(3, 1)], 2, folder=tmp_path, method=method, fedavg=True, stages=stages, download="bfloat16")
    alone = fit(problem, replace(method, preference=(3, 1)), 2, stages=stages, download="bfloat16")
    average = FedAvg(client_lr=0.1, local_steps=2, batch_size=8, drift=FedCM())
    assert front.points[0].scores == alone.scores
    assert front.points[0].scores != fit(problem, replace(method, preference=(3, 1)), 2).scores
    assert front.fedavg is not None
    assert front.fedavg.scores == fit(problem, average, 2, stages=stages, download="bfloat16").scores
    with pytest.raises(ValueError, match=r"holds another sweep, with download = 'bfloat16', but now it is 'full'"):
        sweep(problem, [(3, 1)], 2, folder=tmp_path, method=method, stages=stages)


def test_the_front_is_read_back_as_it_was(whole: tuple[Path, Front]) -> None:
    folder, front = whole
    again = Front.load(folder)
    assert again == front
    assert again.hypervolume == hypervolume([point.losses for point in front.points], front.reference)
    assert json.loads((folder / "front.json").read_text())["hypervolume"] == front.hypervolume
    assert (np.array(front.reference) > [*front.losses, front.fedavg.losses]).all()  # type: ignore[union-attr]
    assert front.single[0].losses[0] == front.minima[0]  # type: ignore[index]
    assert "FedAvg" in str(front)
    with pytest.raises(ValueError, match="must be the folder of a finished sweep"):
        Front.load(folder / "points")


def test_a_picked_model_has_the_points_losses(whole: tuple[Path, Front]) -> None:
    folder, front = whole
    problem = classification()
    for preference in [(1.0, 10.0), (10.0, 1.0)]:
        point = pick(folder, preference)
        model = FlatModel(point.load(problem.model))
        totals, counts = evaluate(problem, model, problem.test, 0, len(problem.test))
        assert (totals / counts)[:2].tolist() == pytest.approx(point.losses)
    with pytest.raises(ValueError, match=r"one number per objective \(2\)"):
        front.pick((1, 2, 3))


def test_the_nearest_point_that_is_not_dominated_is_picked() -> None:
    def at(*losses: float) -> Point:
        return Point("", {f"f{k}": {"loss": x} for k, x in enumerate(losses)}, (1, 1), Path("x"))

    front = Front("p", ("f0", "f1"), (at(1, 3), at(3, 1), at(3, 3)), (4.0, 4.0))
    assert front.non_dominated.tolist() == [True, True, False]
    assert front.pick((3, 1)).losses == [1, 3]
    assert front.pick((1, 2)).losses == [3, 1]
    assert front.hypervolume == 5


def test_points_that_a_baseline_dominates_are_marked() -> None:
    def point(label: str, *losses: float) -> Point:
        return Point(label, {name: {"loss": loss} for name, loss in zip("ab", losses, strict=True)}, (1, 1), Path())

    points = (point("1:2", 1, 4), point("1:1", 3, 3), point("2:1", 3.5, 3.5))
    front = Front("p", ("a", "b"), points, (5, 5), fedavg=point("FedAvg", 2, 2))
    assert front.non_dominated.tolist() == [True, False, False]
    assert [row[-1] for row in front.table().rows] == ["", "by FedAvg", "by FedAvg", ""]
    assert replace(front, fedavg=None).non_dominated.tolist() == [True, True, False]
    assert [row[-1] for row in replace(front, fedavg=None).table().rows] == ["", "", "yes"]
    assert front.pick((1, 1)).label == "1:1"  # a baseline is no answer to a preference
    # (1, 4) has 4 x 1 of the square below (5, 5), FedAvg's (2, 2) has 3 x 3; they share 3 x 1.
    assert front.summary()["hypervolume_with_baselines"] == front.hypervolume_with_baselines == 10
    assert "with the baselines 10;" in front.table().note


@pytest.mark.parametrize("M", [1, 2, 3, 5])
def test_figures_of_any_number_of_objectives_are_drawn(M: int, tmp_path: Path) -> None:
    names = [f"f{k}" for k in range(M)]
    rng = np.random.default_rng(0)
    points = [
        Point(ratio_text(r), {n: {"loss": x} for n, x in zip(names, rng.uniform(1, 2, M), strict=True)}, r, tmp_path)
        for r in evenly_spread(4, M)
    ]
    single = [Point(n, {m: {"loss": 0.8} for m in names}, (), tmp_path) for n in names]
    Front("p", tuple(names), tuple(points), (3.0,) * M, tuple(single), single[0]).plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 10_000


@pytest.mark.parametrize(("M", "n"), [(1, 1), (2, 7), (3, 10), (4, 10), (11, 11)])
def test_preferences_are_spread_evenly(M: int, n: int) -> None:
    """They are positive and distinct, and where n is the size of a lattice, their set does not change with the
    objectives' order and neighbours are equally far apart."""
    points = evenly_spread(n, M)
    shares = np.array(points) / np.array(points).sum(axis=1, keepdims=True)
    assert len(set(points)) == len(points) == n
    assert shares.min() > 0
    order = np.random.default_rng(0).permutation(M)
    assert {tuple(p) for p in shares.round(9)} == {tuple(p) for p in shares[:, order].round(9)}
    if M > 1:
        distances = np.linalg.norm(shares[:, None] - shares[None], axis=2) + 9 * np.eye(len(shares))
        assert np.allclose(distances.min(axis=1), distances.min())
    with pytest.raises(ValueError, match="at least 1"):
        evenly_spread(0, M)


@pytest.mark.parametrize("M", [2, 3, 5])
def test_there_are_just_as_many_rays_as_asked(M: int) -> None:
    assert [len(set(evenly_spread(n, M))) for n in range(1, 13)] == list(range(1, 13))


def test_rays_of_two_objectives_are_in_order() -> None:
    for (a, b), (c, d) in itertools.pairwise(evenly_spread(9, 2)):
        assert a / b < c / d


@pytest.mark.parametrize("text", ["2:", "a:b", "1:0", "1:nan", "1:2:3", ""])
def test_ratios_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="preference"):
        parse_ratio(text, M=2)
    assert parse_ratio("2:1.5", M=2) == (2.0, 1.5)


def test_without_data_to_evaluate_on_there_is_no_front(tmp_path: Path) -> None:
    problem: Problem = classification()
    problem.test = None
    with pytest.raises(ValueError, match="a sweep needs test or validation data"):
        sweep(problem, folder=tmp_path)
    with pytest.raises(ValueError, match=r"one number per objective \(2\)"):
        sweep(classification(), [(1, 2, 3)], folder=tmp_path)
    with pytest.raises(ValueError, match="at least one"):
        sweep(classification(), [], folder=tmp_path)
    with pytest.raises(TypeError, match="needs a FedCMOOPref"):
        sweep(classification(), method=FedCMOO(), folder=tmp_path)  # type: ignore[arg-type]


def test_folders_of_many_objectives_can_be_read() -> None:
    assert _place((2.0, 1.0)) == "2_1"
    assert _place((*[1.0] * 39, 40.0)) == "1x39_40"
    spread = [_place(preference) for preference in evenly_spread(40, 40)]
    assert len(set(spread)) == 40
    assert all(len(name) < 110 for name in [*spread, _place(tuple(n + 0.123456 for n in range(40)))])


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    sweep(classification(), 1, 1, folder=tmp_path, method=METHOD)
    assert torch.equal(before, torch.random.get_rng_state())
