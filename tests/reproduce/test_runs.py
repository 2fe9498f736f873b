"""Runs are found again by what they compute, and by nothing else; scales are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.files import DamagedError
from fedcmoo.history import Record
from fedcmoo.methods import FedAvg
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.reproduce.command import choose
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets import TARGETS
from fedcmoo.reproduce.targets.gram import GramStudy
from fedcmoo.reproduce.valleys import Valleys
from fedcmoo.runs import NotMeasuredError, Runs
from fedcmoo.settings import SettingsError, flatten, from_table, write_toml


def test_place_depends_on_results_alone(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    (config,) = Study().configs("multimnist", "fedcmoo")
    place = runs.place(config)
    assert place.name.startswith("multimnist-fedcmoo-seed0-")
    for same in (
        replace(config, engine=Local()),
        replace(config, data="elsewhere"),
        replace(config, checkpoint_every=3),
    ):
        assert runs.place(same) == place
    for other in (replace(config, seed=1), replace(config, rounds=7), replace(config, clients_per_round=3)):
        assert runs.place(other) != place


def test_a_run_is_found_after_settings_were_added(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    config, other = (Study(seeds=(seed,)).configs("multimnist", "fedcmoo")[0] for seed in (0, 1))
    folder = tmp_path / f"{config.title}-made-before"
    folder.mkdir()
    table = config.to_table()
    del table["method"]["gram_every"]  # as if it were new
    (folder / "config.toml").write_text(write_toml(table))
    assert runs.place(config) == folder
    assert runs.place(replace(config, method=replace(config.method, gram_every=2))) != folder  # type: ignore[call-arg]
    assert runs.place(other) != folder
    assert runs.place(GramStudy.of(config, every=1)) != folder
    (folder / "config.toml").write_text(write_toml({**table, "dropped": 1}))
    assert runs.place(config) != folder


def test_a_run_is_found_as_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    config = small_config()
    runs, others = Runs(tmp_path / "runs"), Runs(tmp_path / "others")
    runs.get(config)
    half = replace(config, rounds=2)
    found = runs.get(half)
    assert len(list(runs.folder.iterdir())) == 1
    made = others.get(half)
    assert [record.without_time() for record in found.history] == [record.without_time() for record in made.history]
    assert found.config == made.config
    for other in (replace(config, rounds=3), replace(config, rounds=6), replace(half, seed=1)):
        assert runs.find(other) is None  # not evaluated at its end, longer, or another run
    with pytest.raises(NotMeasuredError, match="4 of 6 rounds are done"):
        Runs(runs.folder, only_finished=True).get(replace(config, rounds=6))


def test_a_longer_run_continues_a_finished_one(tmp_path: Path) -> None:
    config, trained = small_config(), Count()
    longer = replace(config, rounds=7)
    runs, others = Runs(tmp_path / "runs", lambda name: [trained]), Runs(tmp_path / "others")
    runs.get(replace(config, rounds=2))
    runs.get(config)
    assert trained.rounds == [1, 2, 3, 4]
    before = {file: file.read_bytes() for file in runs.place(config).iterdir()}
    assert runs.rounds_done(longer) == 4
    trained.interrupt = 6
    with pytest.raises(KeyboardInterrupt):
        runs.get(longer)
    trained.interrupt = None
    found, made = runs.get(longer), others.get(longer)
    assert trained.rounds == [1, 2, 3, 4, 5, 6, 7]
    assert [record.without_time() for record in found.history] == [record.without_time() for record in made.history]
    assert found.config == made.config
    assert {file: file.read_bytes() for file in runs.place(config).iterdir()} == before


def test_runs_that_are_not_continued_under_another_number_of_rounds(tmp_path: Path) -> None:
    config = small_config()
    longer = replace(config, rounds=6)
    runs = Runs(tmp_path / "runs")
    runs.get(config)
    assert runs.rounds_done(longer) == 4
    assert runs.rounds_done(replace(longer, evaluate_every=3)) == 0  # no other run is evaluated after four rounds
    assert runs.rounds_done(replace(longer, seed=1)) == 0
    assert runs.rounds_done(replace(longer, privacy=DifferentialPrivacy(epsilon=8.0))) == 0
    runs.publish(tmp_path / "published")
    assert Runs(tmp_path / "published").rounds_done(longer) == 0  # without checkpoints
    (runs.place(config) / "result.json").unlink()
    assert runs.rounds_done(longer) == 0  # unfinished


class Count(Callback):
    """The rounds that were trained; Ctrl-C after the round `interrupt`."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.interrupt: int | None = None

    def after_round(self, record: Record) -> None:
        self.rounds.append(record.round)
        if record.round == self.interrupt:
            raise KeyboardInterrupt


def test_published_runs_are_found_without_their_models(tmp_path: Path) -> None:
    config = small_config()
    runs = Runs(tmp_path / "runs")
    made = runs.get(replace(config, data=str(tmp_path)))
    with pytest.raises(NotMeasuredError):
        Runs(runs.folder, only_finished=True).get(replace(config, seed=1))
    runs.publish(tmp_path / "published")
    (copy,) = (tmp_path / "published").iterdir()
    assert sorted(file.name for file in copy.iterdir()) == ["config.toml", "history.jsonl.gz", "result.json"]
    assert str(tmp_path) not in (copy / "config.toml").read_text()
    for store in (
        Runs(tmp_path / "published", only_finished=True),
        Runs(tmp_path / "new", only_finished=True, published=tmp_path / "published"),
    ):
        assert store.get(config).history == made.history
        assert store.get(replace(config, rounds=2)).history == made.history[:2]
    (copy / "history.jsonl.gz").write_bytes((copy / "history.jsonl.gz").read_bytes()[:-9])
    with pytest.raises(DamagedError, match="compressed history"):
        Runs(tmp_path / "published").get(config)


def small_config() -> StudyConfig:
    method = FedAvg(local_steps=1)
    return StudyConfig(
        problem=Valleys(), method=method, rounds=4, clients_per_round=2, evaluate_every=2, engine=Local()
    )


def test_a_published_run_is_found_beside_an_unfinished_one(tmp_path: Path) -> None:
    config = small_config()
    made = Runs(tmp_path / "made")
    made.get(config)
    made.publish(tmp_path / "published")
    again = Runs(tmp_path / "again")
    again.get(config)
    (again.place(config) / "result.json").unlink()  # as if it had been interrupted
    store = Runs(again.folder, only_finished=True, published=tmp_path / "published")
    assert len(store.get(config).history) == 4


def test_only_runs_that_were_used_are_published_and_never_onto_themselves(tmp_path: Path) -> None:
    config = small_config()
    Runs(tmp_path / "runs").get(replace(config, seed=1))
    runs = Runs(tmp_path / "runs")
    used = runs.get(config)
    (tmp_path / "runs" / "foreign").mkdir()
    (tmp_path / "runs" / "foreign" / "result.json").write_text("{}")
    before = sorted(file.name for file in used.folder.iterdir())
    runs.publish(tmp_path / "runs")
    assert sorted(file.name for file in used.folder.iterdir()) == before
    runs.publish(tmp_path / "published")
    assert [copy.name for copy in (tmp_path / "published").iterdir()] == [used.folder.name]
    copies = Runs(tmp_path / "published")
    copies.get(config)
    copies.publish(tmp_path / "copied")
    assert Runs(tmp_path / "copied", only_finished=True).get(config).history == used.history


def test_a_finished_run_with_missing_rounds_is_damaged(tmp_path: Path) -> None:
    config = small_config()
    runs = Runs(tmp_path)
    history = runs.get(config).folder / "history.jsonl"
    history.write_text(history.read_text().splitlines()[0] + "\n")
    with pytest.raises(DamagedError, match="must have 4 rounds"):
        runs.get(config)


def test_private_runs_are_not_the_beginnings_of_longer_ones() -> None:
    """Their noise is calibrated to the number of rounds."""
    table = {"rounds": 4, "privacy": {"name": "differential", "epsilon": 8.0}}
    assert not RunConfig.from_table(table).beginning_suffices
    assert RunConfig.from_table({"rounds": 4}).beginning_suffices


def test_the_papers_estimator_and_preset_are_used() -> None:
    (config,) = Study(seeds=(0,), full=True).configs("multimnist", "fedcmoo")
    table = config.to_table()
    assert table["method"]["gram"]["name"] == "two-way"
    assert table["method"]["gram"]["compressor"]["name"] == "randomized-svd"
    assert (config.method.client_lr, config.method.server_lr, config.rounds) == (0.5, 1.2, 500)


def test_settings_reach_every_run_but_a_targets_own_stay() -> None:
    study = Study(sets={"method": {"local_steps": 3, "batch_size": 16}}, rounds=4, data="here", seeds=(5,))
    (plain,) = study.configs("multimnist", "fedavg")
    (own,) = study.configs("multimnist", "fedavg", {"method": {"local_steps": 20}})
    assert (plain.method.local_steps, plain.method.batch_size, plain.rounds, plain.data, plain.seed) == (
        3,
        16,
        4,
        "here",
        5,
    )
    assert (own.method.local_steps, own.method.batch_size) == (20, 16)


def test_a_problem_may_have_its_own_scale() -> None:
    study = Study(rounds=200, seeds=(0, 1), rounds_of={"cifar10-mnist": 20}, seeds_of={"cifar10-mnist": (3,)})
    assert [(c.rounds, c.seed) for c in study.configs("multimnist", "fedavg")] == [(200, 0), (200, 1)]
    assert [(c.rounds, c.seed) for c in study.configs("cifar10-mnist", "fedavg")] == [(20, 3)]
    table1 = TARGETS["table1"]()
    assert table1.scale(study, table1.parts) == (
        "small scale (in brackets, full scale): mnist-fmnist, multimnist: 2 seeds, rounds 200 (500); "
        "cifar10-mnist: 1 seed, rounds 20 (500)"
    )
    with pytest.raises(SettingsError, match="did you mean 'qm9'"):
        Study(rounds_of={"qm": 3})


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("full", [False, True])
def test_configurations_can_be_written_and_read(name: str, full: bool) -> None:
    target = TARGETS[name]()
    for part in target.parts:
        for configs in target.plan(Study(full=full), part).values():
            assert len(configs) == (5 if name == "rate" else 3 if full else 1)
            assert all(from_table(type(config), config.to_table()) == config for config in configs)


def test_full_scale_is_the_papers() -> None:
    for name in ("drift", "table2", "local-progress", "gram", "qm9"):
        target = TARGETS[name]()
        assert target.scale(Study(full=True), target.parts) == "full scale: 3 seeds"
        assert all(target.is_full(Study(full=True, seeds=(4,)), part) for part in target.parts)
        assert not any(target.is_full(Study(), part) for part in target.parts)
        assert target.scale(Study(), target.parts).startswith("small scale")
        assert target.scale(Study(full=True, rounds=100), target.parts).startswith("small scale")
    assert TARGETS["rate"]().scale(Study(full=True), ["valleys"]) == "full scale: T from 100 to 10,000, 5 seeds"


def test_full_scale_has_the_papers_settings() -> None:
    # Section 6.1 and appendix D: 100 clients, 10 in a round, batches of 128, 10 local steps; rates by method.
    (fsmgda, fedcmoo, pref) = (
        TARGETS["table1"]().plan(Study(full=True), "multimnist")[name][0]
        for name in ("FSMGDA", "FedCMOO", "FedCMOO-Pref")
    )
    for config, rates in ((fsmgda, (2.0, 0.1)), (fedcmoo, (1.2, 0.5)), (pref, (1.6, 0.3))):
        table = flatten(config.to_table())
        assert (table["method.server_lr"], table["method.client_lr"]) == rates
        assert (table["problem.clients"], table["clients_per_round"]) == (100, 10)
        assert (table["method.batch_size"], table["method.local_steps"]) == (128, 10)
        assert (table["rounds"], table["problem.alpha"]) == (500, 0.3)
    (qm9,) = TARGETS["qm9"]().plan(Study(full=True, seeds=(0,)), "qm9")["FedCMOO"]
    table = flatten(qm9.to_table())
    assert (table["problem.clients"], table["clients_per_round"], table["method.local_steps"]) == (20, 4, 14)
    assert (table["method.server_lr"], table["method.client_lr"]) == (1.0, 0.01)


def test_unknown_target() -> None:
    with pytest.raises(SettingsError, match="target 'tabel1' is not known; did you mean 'table1'"):
        choose(["tabel1"])


@pytest.mark.parametrize(("settings", "complaint"), [({"rounds": 0}, "at least 1"), ({"seeds": (1, 1)}, "different")])
def test_impossible_scales(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Study(**settings)  # type: ignore[arg-type]
