"""What lies on disk is what was written, or it is not used; and no signal costs a round that is done."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedcmoo import Callback, FedCMOO, fit
from fedcmoo.checkpoint import Checkpoint
from fedcmoo.cli import app
from fedcmoo.config import RunConfig
from fedcmoo.engines import Local
from fedcmoo.files import DamagedError
from fedcmoo.history import Record, read_history
from fedcmoo.run_folder import NEWEST, PREVIOUS
from tests.core.problems import classification

METHOD = FedCMOO(local_steps=1, batch_size=16)
ROUNDS = 6


def run(folder: Path, rounds: int = ROUNDS, resume: bool = False) -> list[Record]:
    result = fit(
        classification(), METHOD, rounds, clients_per_round=3, folder=folder, checkpoint_every=2, resume=resume,
        engine=Local(),
    )  # fmt: skip
    return [record.without_time() for record in result.history]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(folder)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_flipped_bit_anywhere_is_noticed(finished: Path) -> None:
    data = bytearray((finished / NEWEST).read_bytes())
    draw = random.Random(0)
    Checkpoint.decode(bytes(data))
    for place in range(len(data)):
        bit = 1 << draw.randrange(8)
        data[place] ^= bit
        with pytest.raises(DamagedError):
            Checkpoint.decode(bytes(data))
        data[place] ^= bit


def test_cut_and_lengthened_checkpoints_are_noticed(finished: Path) -> None:
    data = (finished / NEWEST).read_bytes()
    for wrong in (b"", data[:1], data[:100], data[:-1], data + b"\0", data[:8] + b"[" * 100_000):
        with pytest.raises(DamagedError):
            Checkpoint.decode(wrong)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    finished: Path, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray((copied / NEWEST).read_bytes())
    data[len(data) // 2] ^= 4
    (copied / NEWEST).write_bytes(data)
    assert run(copied, resume=True) == [record.without_time() for record in read_history(finished / "history.jsonl")]
    assert "continuing from the previous one, of round 4" in caplog.text
    assert (copied / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_a_run_goes_on_from_the_last_checkpoint_that_the_history_reaches(finished: Path, copied: Path) -> None:
    whole = (copied / "history.jsonl").read_bytes()
    lines = whole.split(b"\n")
    lines[4] = lines[4].replace(b'"round"', b'"rount"')
    (copied / "history.jsonl").write_bytes(b"\n".join(lines))
    run(copied, resume=True)
    assert (copied / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_without_a_whole_checkpoint_the_error_names_both(copied: Path) -> None:
    for name in (NEWEST, PREVIOUS):
        (copied / name).write_bytes((copied / name).read_bytes()[:-3])
    with pytest.raises(ValueError, match=rf"{NEWEST} cannot be used.*{PREVIOUS} cannot be used.*from round 1"):
        run(copied, resume=True)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda c: replace(c, round=-1), "round must not be negative"),
        (lambda c: replace(c, round=99), "must have 99 rounds"),
        (lambda c: replace(c, arrays={**c.arrays, "x": c.arrays["x"] * float("nan")}), "'x' must be finite"),
        (lambda c: replace(c, arrays={**c.arrays, "w": c.arrays["w"][1:]}), r"'w' must be torch.float64 \[2\]"),
        (lambda c: replace(c, arrays={**c.arrays, "x": c.arrays["x"].double()}), "'x' must be torch.float32"),
        (lambda c: replace(c, arrays={**c.arrays, "y": torch.zeros(1)}), "has no array 'y'"),
        (lambda c: replace(c, arrays={k: v for k, v in c.arrays.items() if k != "w"}), "'w' must be .* but is missing"),
    ],
)
def test_values_that_no_run_has_are_refused(copied: Path, change: object, error: str) -> None:
    assert callable(change)
    (copied / PREVIOUS).unlink()
    wrong = change(Checkpoint.decode((copied / NEWEST).read_bytes()))
    (copied / NEWEST).write_bytes(wrong.encode())
    with pytest.raises(ValueError, match=error):
        run(copied, resume=True)


def test_a_checkpoint_of_another_format_is_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Checkpoint.decode((copied / NEWEST).read_bytes())
    monkeypatch.setattr("fedcmoo.checkpoint.FORMAT", "fedcmoo checkpoint 3")
    data = written.encode()
    monkeypatch.undo()
    with pytest.raises(DamagedError, match="format must be 'fedcmoo checkpoint 2', but is 'fedcmoo checkpoint 3'"):
        Checkpoint.decode(data)


def test_half_written_files_of_a_killed_process_go(copied: Path) -> None:
    stray = copied / f".{NEWEST}.4711.unfinished"
    stray.write_bytes(b"half")
    run(copied, resume=True)
    assert not stray.exists()


def test_rounds_out_of_order_are_no_history(finished: Path, tmp_path: Path) -> None:
    lines = (finished / "history.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "history.jsonl"
    for wrong in (lines[::-1], lines[1:], [*lines, lines[-1]]):
        path.write_text("".join(wrong))
        with pytest.raises(DamagedError, match=r"line \d must be the record of round|must be the record of round \d"):
            read_history(path)


@pytest.mark.parametrize("line", [b"\xff\xfe{}", b"[" * 50_000, b'{"round": NaN}', b"7", b'{"round": 1e999}'])
def test_a_damaged_line_of_a_history_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(line + b"\n")
    with pytest.raises(DamagedError, match="line 1 of"):
        read_history(tmp_path / "history.jsonl")


SMALL = {
    "rounds": 2,
    "clients_per_round": 2,
    "engine": "local",
    "problem": {"name": "two-digits", "clients": 4, "train_pairs": 40, "validation_pairs": 20, "test_pairs": 20},
    "method": {"name": "fedavg", "local_steps": 1},
}


def test_a_run_that_is_refused_leaves_the_configuration_of_the_run_that_is_there(tmp_path: Path) -> None:
    RunConfig.from_table(SMALL).run(tmp_path)
    before = (tmp_path / "config.toml").read_text()
    with pytest.raises(ValueError, match="already holds a run"):
        RunConfig.from_table({**SMALL, "seed": 5}).run(tmp_path)
    assert (tmp_path / "config.toml").read_text() == before


def test_more_rounds_are_as_if_they_had_been_asked_for_at_once(tmp_path: Path) -> None:
    RunConfig.from_table(SMALL).run(tmp_path / "two")
    assert CliRunner().invoke(app, ["resume", str(tmp_path / "two"), "--rounds", "4"]).exit_code == 0
    RunConfig.from_table({**SMALL, "rounds": 4}).run(tmp_path / "four")
    two, four = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("two", "four"))
    assert two == four
    assert "rounds = 4" in (tmp_path / "two" / "config.toml").read_text()


SCRIPT = """
import signal, sys
from pathlib import Path
from fedcmoo import Callback, FedCMOO, fit
from fedcmoo.engines import Local
from tests.core.problems import classification

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started this in the background

class Tell(Callback):
    def after_round(self, record):
        print(record.round, flush=True)

fit(classification(), FedCMOO(local_steps=1, batch_size=16), 10_000, clients_per_round=3, engine=Local(),
    folder=Path(sys.argv[1]), checkpoint_every=10_000, callbacks=[Tell()])
"""


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT] * 5, [signal.SIGTERM, signal.SIGINT]])
def test_no_signal_costs_a_round(signals: list[int], tmp_path: Path) -> None:
    """However fast one follows the other, the checkpoint is of the last round of the history."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        for _ in range(7):
            child.stdout.readline()
        for signum in signals:
            os.kill(child.pid, signum)
            time.sleep(0.001)
        child.stdout.read()
    assert child.returncode in {128 + s if s == signal.SIGTERM else -s for s in signals}
    done = len(read_history(tmp_path / "history.jsonl"))
    assert done >= 7
    assert Checkpoint.decode((tmp_path / NEWEST).read_bytes()).round == done


class Raise(Callback):
    def after_round(self, record: Record) -> None:
        raise LookupError("a mistake in a callback")


def test_signals_are_handled_as_before_when_a_run_has_ended() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(LookupError):
        fit(classification(), METHOD, 2, clients_per_round=3, engine=Local(), callbacks=[Raise()])
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
