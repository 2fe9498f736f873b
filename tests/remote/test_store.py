"""What a node keeps between requests: never used for another model, and readable by nobody else."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
import torch

from fedcmoo.engines.remote.store import DAY, Memories, ModelCache, NodeIdentity, NodeStore, is_signed
from fedcmoo.files import DamagedError
from fedcmoo.messages import Message
from fedcmoo.parameters import State

STATE = State(torch.arange(3.0), torch.ones(1), torch.tensor([2]))


def cache(folder: Path) -> ModelCache:
    return ModelCache(NodeStore(folder).folder("cache", "run").path)


def test_nothing_of_another_model_is_used(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    kept.write("first-1", "0/old", {"J": torch.zeros(2, 3)})
    kept.write_model("new", STATE)
    assert kept.read_model("old") is None
    state = kept.read_model("new")
    assert state is not None
    assert state.version == STATE.version
    assert kept.read("first-1", "0/old") is None  # deleted with its model


def test_versions_tell_models_apart() -> None:
    same = State(STATE.x.clone(), STATE.buffers, STATE.counters)
    other = State(STATE.x, STATE.buffers, torch.tensor([3]))
    assert same.version == STATE.version != other.version


def test_a_torn_file_is_as_good_as_none(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    (kept.path / "model").write_bytes(b"\x10\0\0\0\0\0\0\0{torn")
    assert kept.read_model("new") is None


def test_old_memories_are_kept_only_as_long_as_the_server_may_need_them(tmp_path: Path) -> None:
    memories = Memories(NodeStore(tmp_path).folder("memory", "run").path)
    first, second = (memories.save(1, Message(last=torch.full((2,), float(n))), keep=[]) for n in range(2))
    with pytest.raises(FileNotFoundError, match="is not on this node any more"):
        memories.load(1, first)
    third = memories.save(1, Message(last=torch.full((2,), 2.0)), keep=[second])
    assert memories.load(1, second)["last"].tolist() == [1.0, 1.0]
    assert memories.load(1, third)["last"].tolist() == [2.0, 2.0]


def test_only_its_user_can_read_it_and_old_ones_are_deleted(tmp_path: Path) -> None:
    old = cache(tmp_path)
    memory = NodeStore(tmp_path).folder("memory", "run")
    for path in (old.path, memory.path, old.path.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    two_days_ago = time.time() - 2 * DAY
    for path in (old.path, memory.path):
        os.utime(path, (two_days_ago, two_days_ago))
    NodeStore(tmp_path)
    assert not old.path.exists()
    assert memory.path.exists()


def test_a_link_that_somebody_left_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / f"fedcmoo-{os.getuid()}").symlink_to(tmp_path / "precious")
    with pytest.raises(PermissionError, match="must be a folder of the user"):
        NodeStore(tmp_path)


def test_an_identity_lasts_and_cannot_be_forged(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mine, again, other = NodeIdentity(tmp_path), NodeIdentity(tmp_path), NodeIdentity(tmp_path / "other")
    assert mine.public == again.public != other.public
    assert stat.S_IMODE((tmp_path / "identity.key").stat().st_mode) == 0o600
    assert is_signed(mine.public, "challenge/0/3", again.sign("challenge/0/3"))
    assert not is_signed(mine.public, "challenge/1/3", mine.sign("challenge/0/3"))
    assert not is_signed(mine.public, "challenge/0/3", other.sign("challenge/0/3"))
    assert not is_signed("not a key", "challenge/0/3", "not a signature")


def test_a_process_killed_while_it_makes_a_key_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            NodeIdentity(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert NodeIdentity(tmp_path).public == NodeIdentity(tmp_path).public
    (tmp_path / "identity.key").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"identity\.key cannot be read"):
        NodeIdentity(tmp_path)


def test_half_written_files_of_a_killed_process_go_after_a_day(tmp_path: Path) -> None:
    folder = NodeStore(tmp_path).folder("memory", "run").path
    old, new = (folder / f".client-{i}.77.unfinished" for i in range(2))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * DAY,) * 2)
    NodeStore(tmp_path).folder("memory", "run")
    assert not old.exists()
    assert new.exists()
