"""The command line, run as a person or a script runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from fedcmoo import __version__ as fedcmoo_version
from fedcmoo.cli import app
from fedcmoo.cli.options import errors_for_people
from fedcmoo.cli.resolving import resolve
from fedcmoo.history import read_history

TINY = ["--set", "problem.train_pairs=400", "--set", "problem.test_pairs=50", "--set", "problem.validation_pairs=50"]
TINY += ["--set", "problem.clients=10", "--engine", "local"]


def fedcmoo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its output piped."""
    return subprocess.run(
        [sys.executable, "-m", "fedcmoo", *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    cwd = tmp_path_factory.mktemp("cli")
    return cwd, fedcmoo("run", *TINY, "--rounds", "4", "--local-steps", "2", "--out", "first", cwd=cwd)


def test_run_leaves_everything_in_its_folder(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    cwd, done = finished
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (cwd / "first").iterdir()}
    assert {"config.toml", "history.jsonl", "curves.png", "model.safetensors", "result.json"} <= names
    assert (cwd / "first" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "FSMGDA" in done.stdout
    assert "accuracy" in done.stdout


def test_piped_output_has_no_control_codes(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = finished
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert "round 4/4" in done.stderr


def test_the_saved_configuration_runs_again_to_the_same(
    finished: tuple[Path, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = finished[0] / "first"
    assert ends("run", "--config", str(first / "config.toml"), "--out", str(tmp_path / "second"), "--json") == 0
    a, b = (read_history(folder / "history.jsonl") for folder in (first, tmp_path / "second"))
    assert [r.without_time() for r in a] == [r.without_time() for r in b]
    assert json.loads(capfd.readouterr().out)["rounds"] == 4


def test_ctrl_c_saves_and_resume_goes_on(finished: tuple[Path, object], tmp_path: Path) -> None:
    cwd, _ = finished
    command = [sys.executable, "-m", "fedcmoo", "run", *TINY, "--rounds", "4000", "--local-steps", "2", "--out", "run"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    history = tmp_path / "run" / "history.jsonl"
    while child.poll() is None and (not history.exists() or history.read_bytes().count(b"\n") < 2):
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "fedcmoo resume run" in stderr
    done = len(read_history(history))
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 4000", f"rounds = {done + 2}"))
    assert ends("resume", str(tmp_path / "run")) == 0
    records = read_history(history)
    assert len(records) == done + 2
    first = read_history(cwd / "first" / "history.jsonl")
    assert [r.weights for r in records[:2]] == [r.weights for r in first[:2]]


def test_compare_prints_mean_and_spread_and_reuses_finished_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    variant = "fedavg+server.momentum=0.5"
    args = ["compare", *TINY, "--methods", f"fedcmoo,{variant}", "--seeds", "0,1", "--rounds", "2"]
    args += ["--set", "method.local_steps=2", "--target", "left=0.001", "--out", str(tmp_path)]
    assert ends(*args) == 0
    printed = capfd.readouterr().out
    assert "±" in printed
    assert "seeds that reach it" in printed
    assert (tmp_path / "comparison.png").exists()
    assert (tmp_path / "targets.png").exists()
    (config,) = tmp_path.glob("two-digits-fedavg-seed1-*/config.toml")
    assert "momentum = 0.5" in config.read_text()
    before = {p: p.read_bytes() for p in tmp_path.glob("*/history.jsonl")}
    assert len(before) == 4
    assert ends(*args, "--json") == 0
    assert {p: p.read_bytes() for p in before} == before
    results = json.loads(capfd.readouterr().out)
    assert {(r["label"], r["seed"]) for r in results} == {(m, s) for m in ("FedCMOO", variant) for s in (0, 1)}
    assert {r["to_targets"]["rounds"] for r in results} <= {1, 2}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "two-digit"], "did you mean 'two-digits'"),
        (["run", "--method", "fedcmo"], "did you mean 'fedcmoo'"),
        (["run", "--client-lr", "-1"], "client_lr must be positive and finite, but got -1.0"),
        (["run", "--set", "method.client_rl=1"], "did you mean 'client_lr'"),
        (["run", "--set", "nonsense"], "--set takes KEY=VALUE"),
        (["run", "--clients-per-round", "1000"], "from 1 to the number of clients (100), but got 1000"),
        (["run", "--config", "missing.toml"], "missing.toml does not exist"),
        (["run", "--rounds", "0"], "rounds must be a whole number of at least 1, but got 0"),
        (["run", "--set", "evaluate_every=0"], "evaluate_every must be a whole number of at least 1, but got 0"),
        (["run", "mixed-digits", "--small"], "mixed-digits has none: leave it out"),
        (["resume", "nowhere"], "there is no folder nowhere"),
        (["resume", "."], "a run's folder has a config.toml, but . has none"),
        (["run", "--set", "engine.workers=4"], "add --engine pool or --engine ray"),
        (["bench", "speed", "--rounds", "0"], "rounds must be a whole number of at least 1, but got 0"),
        (["bench", "speed", "--set", "method.name=fedavg"], "the speed of fedcmoo is measured"),
        (["compare", "--seeds", "a,b"], "--seeds must be whole numbers"),
        (["compare", "--seeds", "0,0"], "--seeds must be different, but '0' occurs more than once"),
        (["compare", "--target", "left"], "a target must be OBJECTIVE=VALUE"),
        (["compare", "--target", "middle=0.9"], "objectives are left, right, but got 'middle'"),
        (["compare", "--methods", ""], "--methods must be one or several words separated by commas, but got ''"),
        (["compare", "--methods", "fedavg, fedavg"], "--methods must be different, but 'fedavg' occurs more than once"),
    ],
)
def test_mistakes_cost_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        app(args)
    assert end.value.code == 2
    stderr = capfd.readouterr().err
    assert message in re.sub(r"\s+", " ", stderr)
    assert "Traceback" not in stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_with_a_run_is_not_overwritten(
    finished: tuple[Path, object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert ends("run", *TINY, "--rounds", "1", "--out", str(finished[0] / "first")) == 2
    assert "already holds a run" in re.sub(r"\s+", " ", capfd.readouterr().err)


def test_compare_finds_runs_by_their_settings_alone(tmp_path: Path) -> None:
    args = ["compare", *TINY, "--methods", "fedavg", "--seeds", "0", "--runs", str(tmp_path / "runs")]

    def histories() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "runs").glob("*/history.jsonl")}

    assert ends(*args, "--out", str(tmp_path / "a"), "--rounds", "1") == 0
    (first,) = histories()
    before = histories()[first]
    assert ends(*args, "--out", str(tmp_path / "b"), "--rounds", "1", "--set", "checkpoint_every=3") == 0
    assert histories() == {first: before}  # which changes no result
    results = [(tmp_path / name / "comparison.json").read_bytes() for name in ("a", "b")]
    assert results[0] == results[1]
    assert ends(*args, "--out", str(tmp_path / "a"), "--rounds", "2") == 0
    assert len(histories()) == 2
    assert histories()[first] == before


def test_resume_without_checkpoint_says_that_it_starts_again(finished: tuple[Path, object], tmp_path: Path) -> None:
    cwd, _ = finished
    for name in ("config.toml", "history.jsonl"):
        (tmp_path / name).write_bytes((cwd / "first" / name).read_bytes())
    before = read_history(tmp_path / "history.jsonl")
    done = fedcmoo("resume", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no checkpoint yet: starting again from round 1, without the 4 done" in re.sub(r"\s+", " ", done.stderr)
    after = read_history(tmp_path / "history.jsonl")
    assert [r.without_time() for r in after] == [r.without_time() for r in before]


def test_notes_of_an_error_are_printed_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("too wide")
    error.add_note("in phase 'train' of round 3 at client [5]")
    error.add_note("in a worker process:\nTraceback")
    with pytest.raises(typer.Exit), errors_for_people():
        raise error
    assert capsys.readouterr().err == "error: too wide\nin phase 'train' of round 3 at client [5]\n"


def test_a_damaged_run_is_told_in_a_line(
    finished: tuple[Path, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cwd, _ = finished
    for name in ("config.toml", "history.jsonl", "checkpoint.safetensors"):
        (tmp_path / name).write_bytes((cwd / "first" / name).read_bytes())
    history, checkpoint = tmp_path / "history.jsonl", tmp_path / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert ends("resume", str(tmp_path)) == 1
    assert "checkpoint.safetensors cannot be used: its header" in re.sub(r"\s+", " ", capfd.readouterr().err)
    checkpoint.write_bytes((cwd / "first" / "model.safetensors").read_bytes())
    assert ends("resume", str(tmp_path)) == 1
    assert "checkpoint.safetensors cannot be used: its header" in re.sub(r"\s+", " ", capfd.readouterr().err)
    history.write_text("{}\n" + history.read_text())
    checkpoint.unlink()
    assert ends("resume", str(tmp_path)) == 1
    assert "line 1 of" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "sets"),
    [({"problem": "multimnist", "method": "fsmgda"}, []), ({}, ["problem.name=multimnist", "method.name=fsmgda"])],
)
def test_another_method_or_problem_than_the_files_has_its_own_preset(
    chosen: dict[str, str], sets: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "one.toml"
    file.write_text(
        'seed = 3\n[problem]\nname = "two-digits"\ndropout = 0.1\n[method]\nname = "fedcmoo"\nclient_lr = 9.0\n'
    )
    config = resolve(chosen.get("problem"), chosen.get("method"), file, sets=sets)
    assert config == replace(resolve("multimnist", "fsmgda"), seed=3)
    assert (config.method.client_lr, config.method.server_lr, config.rounds) == (0.1, 2.0, 500)  # appendix D.3
    own = resolve(None, None, file)
    assert (own.method.client_lr, own.method.batch_size, own.rounds) == (9.0, 32, 80)  # the preset's, but for the file


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert ends("--version") == 0
    assert capfd.readouterr().out == f"fedcmoo {fedcmoo_version}\n"


def ends(*args: str) -> int | str | None:
    """The exit code of a command in this process."""
    with pytest.raises(SystemExit) as end:
        app(args)
    return end.value.code


def test_list_and_help_name_everything(capfd: pytest.CaptureFixture[str]) -> None:
    def printed(*args: str) -> str:
        with pytest.raises(SystemExit):
            app(args)
        return capfd.readouterr().out

    listing = printed("list")
    for name in ("two-digits", "fedcmoo", "fsmgda", "fedavg", "mgda", "exact", "find-weights", "adam", "local"):
        assert name in listing
    about = printed("list", "sketch")
    assert "random projection" in about
    assert re.search(r"budget +None", about)
    assert "default: (fedcmoo-pref)" in " ".join(printed("bench", "gram", "--help").replace("│", " ").split())
    help_text = printed("run", "--help")
    for option in ("--method", "--rounds", "--seed", "--config", "--client-lr", "--json"):
        assert option in help_text


def test_help_needs_no_torch_and_describes_arguments(tmp_path: Path) -> None:
    commands = ["", "run", "compare", "pareto", "reproduce", "list", "bench speed", "flower demo"]
    script = """if True:
        import sys
        from fedcmoo.cli import app
        for command in sys.argv[1:]:
            try:
                app([*command.split(), "--help"])
            except SystemExit as end:
                assert end.code == 0
        assert "torch" not in sys.modules
    """
    words = [sys.executable, "-c", script, *commands]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "120"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == len(commands)
    assert done.stdout.count("a ready-made problem (see: fedcmoo list), or MODULE:NAME of yours") == 4


def test_lists_of_a_group_and_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    def listed(*args: str) -> str:
        assert ends("list", *args) == 0
        return capfd.readouterr().out

    weights = listed("weights")
    assert "upgrad" in weights
    assert "two-digits" not in weights
    everything = json.loads(listed("--json"))
    assert {"problems", "methods", "gram", "compressors", "weights", "optimizers", "engines"} <= set(everything)
    assert "multimnist-l2" in everything["problems"]
    assert json.loads(listed("sgd", "--json"))["optimizers"]["settings"]["momentum"] == "0.0"
