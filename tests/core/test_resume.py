"""A run that is killed and resumed has the history and the model of one that never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcmoo import Callback, FedAvg, FedCMOO, fit
from fedcmoo.acceptance import Acceptance
from fedcmoo.config import RunConfig
from fedcmoo.drift import Scaffold
from fedcmoo.engines import Local
from fedcmoo.history import Record, read_history
from tests.core.problems import classification
from tests.core.runs import Interrupt

METHOD = FedCMOO(local_steps=2, batch_size=16, drift=Scaffold())  # clients with a state
ROUNDS = 12

SCRIPT = """
import sys, time
from pathlib import Path
from fedcmoo import Callback, FedCMOO, fit
from fedcmoo.engines import ENGINES
from fedcmoo.run_folder import holds_run
from tests.core.problems import classification

class Slow(Callback):
    def after_round(self, record):
        time.sleep(0.02)

fit(classification(), FedCMOO(local_steps=2, batch_size=16, drift="scaffold"), rounds=12, clients_per_round=4,
    evaluate_every=3, folder=Path(sys.argv[1]), checkpoint_every=2, engine=ENGINES[sys.argv[2]](),
    callbacks=[Slow()], resume=holds_run(Path(sys.argv[1])))
"""


def run(folder: Path, resume: bool = False, callbacks: tuple[Callback, ...] = ()) -> list[Record]:
    result = fit(
        classification(),
        METHOD,
        ROUNDS,
        clients_per_round=4,
        evaluate_every=3,
        folder=folder,
        checkpoint_every=2,
        resume=resume,
        callbacks=callbacks,
        engine=Local(),
    )
    return [record.without_time() for record in result.history]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder)
    return folder


def same(folder: Path, other: Path) -> None:
    a, b = (read_history(f / "history.jsonl") for f in (folder, other))
    assert len(a) == ROUNDS
    assert [r.without_time() for r in a] == [r.without_time() for r in b]
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("engine", "growth"), [("local", (1, 3, 2, 100)), ("pool", (3, 100)), ("ray", (3, 100))])
def test_resume_after_sigkill_at_any_moment(
    engine: str, growth: tuple[int, ...], undisturbed: Path, tmp_path: Path
) -> None:
    """Killed again and again, each time when the history has grown by some lines, until it gets through."""
    if engine == "ray":
        pytest.importorskip("ray")
    folder = tmp_path / "run"
    kills = 0
    for grow in growth:
        before = _lines(folder)
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), engine], cwd=Path(__file__).parents[2])
        while child.poll() is None and _lines(folder) < before + grow:
            time.sleep(0.005)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
    assert kills >= len(growth) // 2
    same(folder, undisturbed)


def _lines(folder: Path) -> int:
    path = folder / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_ctrl_c_saves_the_last_round_done(undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, callbacks=(Interrupt(7),))  # between two checkpoints
    assert len(read_history(tmp_path / "history.jsonl")) == 7
    assert run(tmp_path, resume=True) == [r.without_time() for r in read_history(undisturbed / "history.jsonl")]
    same(tmp_path, undisturbed)


def test_a_line_cut_short_is_left_out(undisturbed: Path, tmp_path: Path) -> None:
    whole = (undisturbed / "history.jsonl").read_text()
    (tmp_path / "history.jsonl").write_text(whole[:-25])
    assert len(read_history(tmp_path / "history.jsonl")) == ROUNDS - 1


def test_a_checkpoint_of_another_run_is_refused(undisturbed: Path) -> None:
    other = classification()
    other.model.extra = torch.nn.Linear(8, 3)
    with pytest.raises(ValueError, match=r"another run:\n  parameters: 126 there, 153 here\n"):
        fit(other, METHOD, ROUNDS, clients_per_round=4, folder=undisturbed, resume=True)


def test_a_run_knows_its_objectives_clients_and_data(undisturbed: Path) -> None:
    renamed, fewer, smaller, others = (classification() for _ in range(4))
    renamed.objectives = renamed.objectives[::-1]
    fewer.clients = fewer.clients[:-1]
    x, (a, b) = smaller.clients[3]
    smaller.clients = [*smaller.clients[:3], (x[1:], (a[1:], b[1:])), *smaller.clients[4:]]
    x, targets = others.clients[0]
    others.clients = [(x + 1, targets), *others.clients[1:]]
    for problem, difference in (
        (renamed, "objectives: first, second there, second, first here"),
        (fewer, "clients: 8 there, 7 here"),
        (smaller, "client 3: 40 samples there, 39 samples here"),
        (others, r"client 0 data: 40 samples \(checksum \w+\) there, 40 samples \(checksum \w+\) here"),
    ):
        with pytest.raises(ValueError, match=f"another run:\n  {difference}\ncontinue it with"):
            fit(problem, METHOD, ROUNDS, clients_per_round=4, folder=undisturbed, resume=True)


def test_a_run_knows_its_parts_owners_weights_and_acceptance(tmp_path: Path) -> None:
    arguments = {"rounds": 1, "clients_per_round": 2, "folder": tmp_path, "engine": Local()}
    fit(classification(clients=2), FedAvg(local_steps=1), **arguments)  # type: ignore[arg-type]
    settings: list[tuple[dict[str, Any], str]] = [
        ({"shared": ["encoder.0"]}, "shared: encoder there, encoder.0 here"),
        ({"weights": [1, 2]}, r"weights: equal there, \[1.0, 2.0\] here"),
        ({"owns": [["first"], ["second"]]}, r"owns: by labels there, \[\['first'\], \['second'\]\] here"),
    ]
    for changes, difference in settings:
        with pytest.raises(ValueError, match=f"another run:\n  {difference}"):
            fit(replace(classification(clients=2), **changes), FedAvg(local_steps=1), resume=True, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"acceptance\.max_norm: 100000000\.0 there, 9\.0 here"):
        fit(
            classification(clients=2), FedAvg(local_steps=1), resume=True, acceptance=Acceptance(max_norm=9.0),
            **arguments,  # type: ignore[arg-type]
        )  # fmt: skip


def test_a_finished_run_without_checkpoint_is_not_written_over(tmp_path: Path) -> None:
    fit(classification(), FedAvg(local_steps=1), 2, folder=tmp_path, engine=Local())
    (tmp_path / "checkpoint.safetensors").unlink()
    before = (tmp_path / "history.jsonl").read_bytes()
    with pytest.raises(ValueError, match="a finished run of 2 rounds without one: choose another folder"):
        fit(classification(), FedAvg(local_steps=1), 3, folder=tmp_path, resume=True, engine=Local())
    assert (tmp_path / "history.jsonl").read_bytes() == before
    assert (tmp_path / "result.json").exists()


def test_a_finished_run_resumes_to_itself(undisturbed: Path) -> None:
    before = (undisturbed / "history.jsonl").read_bytes()
    run(undisturbed, resume=True)
    assert (undisturbed / "history.jsonl").read_bytes() == before


def test_resume_without_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="folder"):
        fit(classification(), METHOD, 1, resume=True)


def test_a_mistyped_folder_is_no_run_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="resume needs the folder of a run"):
        fit(classification(), METHOD, 1, folder=tmp_path / "rnu", resume=True)
    assert not (tmp_path / "rnu").exists()


def test_other_threads_give_other_bits_so_they_are_another_run(undisturbed: Path) -> None:
    with pytest.raises(ValueError, match=r"engine\.threads: 1 there, 2 here"):
        fit(
            classification(),
            METHOD,
            ROUNDS,
            clients_per_round=4,
            folder=undisturbed,
            resume=True,
            engine=Local(threads=2),
        )
    one, two = (RunConfig.from_table({"engine": {"name": "local", "threads": n}}) for n in (1, 2))
    assert one.computes_the_same_as(RunConfig())
    assert not one.computes_the_same_as(two)


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    fit(classification(), METHOD, 2, folder=tmp_path, engine=Local())
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"already holds a run of 2 rounds.*resume=True"):
        fit(classification(), METHOD, 3, folder=tmp_path, engine=Local())
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_run_goes_on_only_as_the_same_run(tmp_path: Path) -> None:
    fit(classification(), METHOD, 2, clients_per_round=3, folder=tmp_path, engine=Local())
    for method, clients, seed, what in (
        (FedAvg(), 3, 0, "method: FedCMOO there, FedAvg here"),
        (replace(METHOD, client_lr=0.123), 3, 0, "method.client_lr: 0.3 there, 0.123 here"),
        (METHOD, 2, 0, "clients_per_round: 3 there, 2 here"),
        (METHOD, 3, 1, "seed: 0 there, 1 here"),
    ):
        with pytest.raises(ValueError, match=f"holds another run:\n  {what}"):
            fit(
                classification(), method, 3, clients_per_round=clients, seed=seed, folder=tmp_path, resume=True,
                engine=Local(),
            )  # fmt: skip


def test_two_runs_cannot_write_to_one_folder(tmp_path: Path) -> None:
    class StartAnother(Callback):
        def after_round(self, record: Record) -> None:
            fit(classification(), METHOD, 2, folder=tmp_path, resume=True, engine=Local())

    with pytest.raises(OSError, match="in use by another run"):
        fit(classification(), METHOD, 2, folder=tmp_path, callbacks=[StartAnother()], engine=Local())
    result = fit(classification(), METHOD, 2, folder=tmp_path, resume=True, engine=Local())
    assert [record.round for record in result.history] == [1, 2]
