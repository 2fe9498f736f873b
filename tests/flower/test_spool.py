"""What a node keeps between phases: the same bits as if its process had lived on, and never those of another round."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from fedcmoo import FedCMOO, Objective, Problem
from fedcmoo.flower.spool import FORGET_AFTER, Spool, SpoolingWorker
from fedcmoo.flower.wire import model_message
from fedcmoo.gram import Exact
from fedcmoo.messages import Message
from fedcmoo.worker import Worker, state_of

METHOD = FedCMOO(client_lr=0.1, local_steps=3, batch_size=4, gram=Exact())


def problem() -> Problem:
    """Two clients, and a model with buffers and dropout."""
    draws = torch.Generator().manual_seed(0)
    data = [(torch.randn(9, 4, generator=draws), torch.randn(9, 1, generator=draws)) for _ in range(2)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))
    return Problem(model, [Objective("a", nn.MSELoss()), Objective("b", nn.L1Loss())], clients=data)


def new_process(spool: Spool) -> SpoolingWorker:
    """A worker that knows nothing but the spool, as in a new process."""
    worker = SpoolingWorker(problem(), METHOD.tasks(), seed=1)
    worker.begin(spool, "run/0", seed=0)
    return worker


def test_phases_in_different_processes_give_the_same_bits(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "node")
    worker = Worker(problem(), METHOD.tasks(), seed=0)
    state = state_of(worker.model)
    phases = [("jacobian", Message()), ("train", Message(w=torch.tensor([0.3, 0.7], dtype=torch.float64)))]
    expected = [worker.answer(state, 0, phase, message, 1) for phase, message in phases]
    replies = [new_process(spool).answer(state, 0, phase, message, 1) for phase, message in phases]
    for mine, yours in zip(expected, replies, strict=True):
        assert set(mine) == set(yours)
        assert all(torch.equal(mine[name], yours[name]) for name in mine)


def test_gradients_wait_in_the_spool_until_they_have_served(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "node")
    state = state_of(new_process(spool).model)
    first = new_process(spool).answer(state, 0, "jacobian", Message(), 1)
    kept = spool.read("first-1", "run/0")
    assert kept is not None
    assert torch.equal(kept["J"], first["h"])
    new_process(spool).answer(state, 0, "train", Message(w=torch.tensor([0.5, 0.5], dtype=torch.float64)), 1)
    assert spool.read("first-1", "run/0") is None


def test_nothing_of_another_round_is_used(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "node")
    model = model_message(state_of(new_process(spool).model))
    spool.write("first-1", "run/0", {"J": torch.zeros(2, 3)})
    spool.write_model("run/1", model)
    assert spool.read_model("run/0") is None
    assert spool.read_model("run/1") is not None
    assert spool.read("first-1", "run/0") is None  # gone with its round


def test_a_torn_file_is_as_good_as_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "node")
    (spool.path / "model").write_bytes(b"\x10\0\0\0\0\0\0\0{torn")
    assert spool.read_model("run/0") is None


def test_only_its_user_can_read_it_and_old_ones_go(tmp_path: Path) -> None:
    (tmp_path / "of others").mkdir()
    old = Spool(tmp_path, "old")
    assert stat.S_IMODE(old.path.stat().st_mode) == stat.S_IMODE(old.path.parent.stat().st_mode) == 0o700
    long_ago = time.time() - FORGET_AFTER - 60
    for path in (old.path, tmp_path / "of others"):
        os.utime(path, (long_ago, long_ago))
    new = Spool(tmp_path, "new")
    assert new.path.exists()
    assert not old.path.exists()
    assert (tmp_path / "of others").exists()


def test_a_link_that_somebody_left_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / f"fedcmoo-{os.getuid()}").symlink_to(tmp_path / "precious")
    with pytest.raises(PermissionError, match="must be a folder of the user"):
        Spool(tmp_path, "node")
