"""Runs on a real federation: SuperLink, SuperNodes and apps in processes of their own, on loopback."""

from __future__ import annotations

import os
import runpy
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from fedcmoo import fit
from fedcmoo.config import RunConfig
from fedcmoo.contributions import Channels
from fedcmoo.engines import Local, Session
from fedcmoo.evaluation import Scores
from fedcmoo.flower.demo import run_app
from fedcmoo.flower.deploy import Deployment
from fedcmoo.flower.keys import write_keys
from fedcmoo.flower.template import write_app
from fedcmoo.history import Record, read_history
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.settings import Table, merge
from fedcmoo.sums import Sums
from tests.privacy.silent import SilentEngine

pytestmark = pytest.mark.deployment

SMALL: Table = {
    "rounds": 2,
    "clients_per_round": 6,
    "evaluate_every": 2,
    "checkpoint_every": 1,
    "problem": {
        "name": "two-digits",
        "clients": 6,
        "train_pairs": 120,
        "validation_pairs": 20,
        "test_pairs": 20,
    },
    "method": {"name": "fedcmoo", "gram": "exact", "local_steps": 2, "batch_size": 8},
}


def config(**changes: object) -> RunConfig:
    return RunConfig.from_table(merge(SMALL, changes))


def run(federation: Deployment, folder: Path, app: Path, **settings: object) -> list[Record]:
    """Run an app to its end; returns its history."""
    out = folder / "out"
    run_app(federation, app, {"folder": str(out), **settings}, out, print, timeout=240)
    return read_history(out / "history.jsonl")


def wait_for_rounds(folder: Path, rounds: int) -> None:
    until = time.monotonic() + 240
    while len(read_history(folder / "out" / "history.jsonl")) < rounds:
        assert time.monotonic() < until, "the run does not get on"
        time.sleep(0.1)


def without_time(records: list[Record]) -> list[Record]:
    return [record.without_time() for record in records]


def model_of(folder: Path) -> Mapping[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "out" / "model.safetensors")


def test_the_server_is_killed_and_the_resumed_run_has_the_history_of_an_uninterrupted_one(
    federation: Deployment, tmp_path: Path
) -> None:
    """With the two-way Gram matrix, which takes three exchanges a round, and SCAFFOLD, whose clients have a state that
    stays at their node; equal to the local engine bit for bit."""
    chosen = config(rounds=3, evaluate_every=3, method={"gram": "two-way", "drift": "scaffold"})
    app = tmp_path / "app"
    write_app(app, chosen)
    server_app = app / "federation" / "server_app.py"
    tell = f"\nimport os, pathlib\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
    server_app.write_text(server_app.read_text() + tell)
    command = federation.run(app, {"folder": str(tmp_path / "out")})
    wait_for_rounds(tmp_path, 2)
    time.sleep(1)  # into the middle of round three
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    os.killpg(federation.superlink.pid, signal.SIGKILL)
    os.killpg(command.pid, signal.SIGKILL)  # which followed the run's log
    federation.start_superlink()

    history = run(federation, tmp_path, app, resume=True)

    local = replace(chosen, engine=Local()).run()
    assert without_time(history) == without_time(list(local.history))
    assert set(history[0].up) == {"jacobian", "correction", "train"}
    assert all(torch.equal(model_of(tmp_path)[name], value) for name, value in local.model.state_dict().items())


TAMPER = '''
import torch
from flwr.app import Array, ConfigRecord

from fedcmoo.messages import Message


def tamper(message, context, call_next):
    """Node 1, which holds clients 1 and 4, sends nonsense."""
    reply = call_next(message, context)
    if context.node_config["partition-id"] != 1 or "round" not in message.content["values"]:
        return reply
    request, blobs = message.content["values"], reply.content["blobs"]

    def change(i, f):
        good = Message.decode(blobs[f"client-{i}"].data)
        data = Message(**{name: f(a) for name, a in good.items()}).encode()
        blobs[f"client-{i}"] = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)

    where = (request["round"], request["names"][0])
    if where == (0, "jacobian"):
        change(1, lambda a: a[:, 1:])
    elif where == (0, "train"):
        change(4, lambda a: a * float("nan"))
    elif where == (1, "jacobian"):
        change(4, lambda a: torch.zeros(10**7))
    elif where == (1, "train"):
        reply.content["values"] = ConfigRecord({"token": "0/0/train/0", "needs_model": False})
    return reply


app = client_app(problem, method, mods=[tamper])
'''

DROPPED = {(0, "jacobian"): 1, (0, "train"): 4, (1, "jacobian"): 4, (1, "train"): 1}


class Dropping(Session):
    """The local engine without the replies in DROPPED: what the run on Flower must be equal to."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner

    def ask(self, ask: Ask, server: Server) -> Sums:
        missing = DROPPED.get((server.round, ask.phase))
        sums = self.inner.ask(replace(ask, clients=tuple(i for i in server.cohort if i != missing)), server)
        if missing is not None:
            sums.failures[missing] = "dropped"
        return sums

    def evaluate(self, server: Server, split: str) -> Scores:
        return self.inner.evaluate(server, split)


class DroppingEngine:
    def start(self, problem: Problem, channels: Channels, seed: int, sizes: Sizes) -> Session:
        return Dropping(Local().start(problem, channels, seed, sizes))


def test_wrong_shaped_nan_oversized_and_stale_replies_change_nothing(federation: Deployment, tmp_path: Path) -> None:
    """They count as failures of their clients, and the model is that of a run in which they never came."""
    chosen = config()
    app = tmp_path / "app"
    write_app(app, chosen)
    client_app = app / "federation" / "client_app.py"
    client_app.write_text(client_app.read_text() + TAMPER)

    history = run(federation, tmp_path, app)

    reference = fit(
        chosen.problem.build(0), chosen.method, 2, clients_per_round=6, evaluate_every=2, engine=DroppingEngine()
    )
    words = [{"1": "shape", "4": "finite"}, {"4": "at most", "1": "token"}]
    for record, expected in zip(history, words, strict=True):
        assert set(record.failures) == set(expected)
        assert all(word in record.failures[i] for i, word in expected.items())
    mine, yours = ([replace(r, failures={}) for r in without_time(list(h))] for h in (history, reference.history))
    assert mine == yours
    assert all(torch.equal(model_of(tmp_path)[name], value) for name, value in reference.model.state_dict().items())


SILENT = '''
def silent(message, context, call_next):
    """Client 1 drops out of every secure sum when it should send its masked codes."""
    reply = call_next(message, context)
    if context.node_config["partition-id"] == 1 and message.content["values"].get("trip") == "mask":
        del reply.content["blobs"]["client-1"]
    return reply


app = client_app(problem, method, mods=[silent], stages=CONFIG.stages)
'''


def test_secure_sums_with_a_drop_out_are_those_of_the_same_codes(federation: Deployment, tmp_path: Path) -> None:
    """The run is equal, bit for bit, to one in this process from which the same client drops out."""
    pytest.importorskip("cryptography")
    method = {"gram": {"name": "sketch", "bits": 32}, "trips": 1}
    chosen = config(method=method, secure="masked", clip=2.0)
    app = tmp_path / "app"
    write_app(app, chosen)
    client_app = app / "federation" / "client_app.py"
    client_app.write_text(client_app.read_text() + SILENT)

    history = run(federation, tmp_path, app)

    here = SilentEngine({"mask": {1}})
    problem, stages = chosen.problem.build(0), chosen.stages
    settings = {"clients_per_round": 6, "evaluate_every": 2, "on_failure": "skip"}
    reference = fit(problem, chosen.method, 2, engine=here, stages=stages, **settings)  # type: ignore[arg-type]
    mine, yours = ([replace(r, failures={}) for r in without_time(list(h))] for h in (history, reference.history))
    assert mine == yours
    assert [set(record.failures) for record in history] == [{"1"}, {"1"}]
    assert all(torch.equal(model_of(tmp_path)[name], value) for name, value in reference.model.state_dict().items())


def test_a_node_is_killed_in_the_middle_of_a_round(federation: Deployment, tmp_path: Path) -> None:
    """The run goes on without its clients and ends with the right number of rounds. (The last test on this node.)"""
    app = tmp_path / "app"
    write_app(app, config())
    process = federation.run(app, {"folder": str(tmp_path / "out"), "deadline": 20.0})
    wait_for_rounds(tmp_path, 1)
    os.killpg(federation.node[2].pid, signal.SIGKILL)

    process.wait(240)

    history = read_history(tmp_path / "out" / "history.jsonl")
    assert [record.round for record in history] == [1, 2]
    assert not history[0].failures
    assert {"2", "5"} <= set(history[1].failures)
    assert all("no answer" in history[1].failures[i] for i in ("2", "5"))
    assert all(torch.isfinite(value).all() for value in model_of(tmp_path).values())


HOSPITALS = Path(__file__).parents[2] / "examples" / "flower" / "hospitals"


def test_sites_with_keys_train_on_their_own_tables_and_an_unregistered_one_is_refused(tmp_path: Path) -> None:
    """The hospitals of the examples, with three label sets, TLS and node authentication; equal to a run with all tables
    in one place."""
    runpy.run_path(str(HOSPITALS / "make_data.py"))["write_tables"](tmp_path)
    write_keys(tmp_path / "keys", nodes=3, hosts=["127.0.0.1"])
    write_keys(tmp_path / "others", nodes=1, hosts=["127.0.0.1"])
    tables = f'data="{tmp_path}/site-{{partition}}.csv"'
    test = str(tmp_path / "test.csv")
    with Deployment(tmp_path / "tls", nodes=3, node_config=tables, keys=tmp_path / "keys") as federation:
        federation.start_node(3, partitions=4, key=tmp_path / "others" / "node-0")
        (record,) = run(federation, tmp_path, HOSPITALS, rounds=1, test_data=test)
        federation.node[3].wait(60)
        assert "SuperNode ID" in federation.log("node-1")
        assert "SuperNode ID" not in federation.log("node-3")

    task = runpy.run_path(str(HOSPITALS / "hospitals" / "task.py"))
    server = Context(0, 0, {}, RecordDict({}), {"sites": 3, "seed": 0, "test-data": test}, 0)
    problem = task["problem"](server)
    problem.clients = [task["read"](tmp_path / f"site-{n}.csv") for n in range(3)]
    assert [problem.share(n).owned for n in range(3)] == [(True, False), (False, True), (True, True)]
    assert record.without_time() == fit(problem, task["method"](server), rounds=1).history[0].without_time()
