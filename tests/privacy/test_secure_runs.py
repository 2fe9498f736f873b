"""Secure sums in whole runs: exact, hidden, with drop-outs, on the local engine and over nodes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from campaign.loopback import Loopback
from fedcmoo import FSMGDA, FedAvg, FedCMOO, FedCMOOPref, Problem, Result, fit
from fedcmoo.compression import Rotated
from fedcmoo.contributions import Channels
from fedcmoo.drift import Scaffold
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.store import NodeIdentity
from fedcmoo.engines.secure import SecureSession
from fedcmoo.failures import ClientFailedError, Skip
from fedcmoo.gram import Exact, Sketch, TwoWay
from fedcmoo.messages import Message
from fedcmoo.methods import Method
from fedcmoo.parameters import FlatModel
from fedcmoo.privacy import Clip, DifferentialPrivacy, Secure
from fedcmoo.privacy.secure.codes import SumCode
from fedcmoo.privacy.secure.masks import unpack
from fedcmoo.privacy.secure.protocol import SecureSumError
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.worker import Request, Worker, round_seed
from tests.core.problems import classification, quadratics
from tests.core.runs import assert_same
from tests.privacy.silent import SilentEngine

N = 7
LEAST = 5  # more than two thirds of 7
TRIPS = ("advertise", "share", "mask", "unmask")
SKETCH = FedCMOO(client_lr=0.1, local_steps=2, batch_size=None, gram=Sketch(bits=32))


def problem() -> Problem:
    return quadratics(clients=N, d=40)


def server_of(problem: Problem, seed: int = 5) -> Server:
    model = FlatModel(problem.model, problem.is_shared)
    sizes = Sizes.of(model, problem.M)
    x = model.x.detach().clone()
    cohort = tuple(range(problem.N))
    server = Server(sizes, seed, problem.N, x, model.buffers(), model.counters(), np.ones(2) / 2, cohort=cohort)
    return replace(server, on_failure=Skip())


ASK = Ask({"jacobian": Message(seed=torch.tensor([5])), "train": Message(w=torch.tensor([0.25, 0.75]).double())})


def plain_sum(
    problem: Problem, channels: Channels, secure: Secure, n: int, clients: Collection[int]
) -> dict[str, Tensor]:
    """The sum of the clients' codes without any mask, as integers, decoded."""
    worker, state = Worker(problem, channels, seed=5), server_of(problem).model
    code = SumCode(secure, channels, list(ASK.messages), worker.sizes, n, round_seed(5, 0))
    total = np.zeros(code.count, dtype=np.int64)
    for i in clients:
        reply, _ = worker.reply(state, Request(0, "", ASK.messages), i)
        total += code.encode(reply, _rounding(i))
    return code.decode((total % 2**secure.bits).astype(np.uint32))


def _rounding(i: int) -> torch.Generator:
    from fedcmoo.randomness import generator

    return generator(round_seed(5, 0), "round", *ASK.messages, i)


@pytest.mark.parametrize("bits", [12, 32])
@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("dropped", [0, 1, N - LEAST])
def test_the_sum_is_that_of_the_same_codes_whoever_drops_out(trip: str, dropped: int, bits: int) -> None:
    federation, secure = problem(), Secure(bits=bits, bound=10.0)
    channels = SKETCH.channels([secure])
    silent = set(range(1, 1 + dropped))
    server = server_of(federation)
    with SilentEngine({trip: silent}).start(federation, channels, 5, server.sizes) as inner:
        sums = SecureSession(inner, secure, channels, server.sizes).ask(ASK, server)
    inside = sorted(set(range(N)) - silent) if trip != "unmask" else range(N)
    n = len(inside) if trip == "advertise" else N
    assert sums.count == len(inside)
    assert set(sums.failures) == silent
    expected = plain_sum(federation, channels, secure, n, inside)
    assert set(sums.totals) == set(expected) == {"jacobian/sketch", "jacobian/own", "train/update"}
    for name, total in expected.items():
        assert torch.equal(sums.totals[name], total)


@pytest.mark.parametrize("trip", TRIPS[1:])
def test_one_drop_out_too_many_undoes_the_round_and_loses_nothing(trip: str, tmp_path: Path) -> None:
    before = run(Local(), rounds=2, folder=tmp_path)
    after = run(SilentEngine({trip: {0, 1, 2}}), rounds=3, folder=tmp_path, resume=True, on_failure="skip")
    assert f"needs 5 of them in each phase, but 4 answered in '{trip}'" in (after.history[-1].undone or "")
    assert [r.without_time() for r in after.history[:2]] == [r.without_time() for r in before.history]
    assert torch.equal(x_of(after), x_of(before))


def test_a_cohort_too_large_for_the_bits_makes_no_sum() -> None:
    """Poisson cohorts may be larger than expected; the bound on a client would be negative."""
    federation, secure = quadratics(clients=26, d=40), Secure(bits=8, bound=10.0)
    channels, server = SKETCH.channels([secure]), server_of(federation)
    with Local().start(federation, channels, 5, server.sizes) as inner:
        session = SecureSession(inner, secure, channels, server.sizes)
        with pytest.raises(SecureSumError, match="bits must be at least 10 for sums over 26 clients, but got 8"):
            session.ask(ASK, server)


def test_a_drop_out_ends_a_run_that_is_to_stop_at_failures() -> None:
    with pytest.raises(ClientFailedError, match="client 1: it is silent"):
        run(SilentEngine({"share": {1}}))


def run(engine: Engine, method: Method = SKETCH, rounds: int = 2, **settings: Any) -> Result:
    settings = {"stages": [Secure()], "clients_per_round": N, "evaluate_every": 1, **settings}
    return fit(settings.pop("on", None) or problem(), method, rounds, engine=engine, **settings)


def x_of(result: Result) -> Tensor:
    x: Tensor = result.model.state_dict()["x"]
    return x


def test_the_server_receives_uniform_words_and_never_the_same_masks() -> None:
    """Two runs with one seed: the codes are equal, and so are the models, but not the masks, in any round."""
    federation = quadratics(clients=N, d=4000)
    engines = [SilentEngine() for _ in range(2)]
    method = FedAvg(client_lr=0.1, local_steps=1, batch_size=None)
    results = [run(engine, method, on=federation) for engine in engines]
    assert_same(*results)
    words = [[unpack(data, 32, 4000, "it") for data in engine.received] for engine in engines]
    assert len(words[0]) == 2
    for mine, yours in zip(*words, strict=True):
        for uniform in (mine, yours, mine - yours):
            assert stats.chisquare(np.bincount(uniform >> 26, minlength=64)).pvalue > 1e-6
            assert stats.chisquare(np.bincount(uniform & 63, minlength=64)).pvalue > 1e-6


@pytest.mark.parametrize(
    "method",
    [
        SKETCH,
        replace(SKETCH, gram=Exact(), trips=1),
        replace(SKETCH, drift=Scaffold()),
        FedCMOOPref(client_lr=0.1, local_steps=1, batch_size=None, gram=Sketch(bits=32)),
        FSMGDA(client_lr=0.1, local_steps=1, batch_size=None),
    ],
    ids=["sketch", "one-trip", "scaffold", "pref", "fsmgda"],
)
def test_nodes_give_the_bits_of_the_local_engine_and_nearly_those_of_plain_sums(method: Method, tmp_path: Path) -> None:
    keys = []
    for node in range(3):
        home = tmp_path / f"node-{node}"
        home.mkdir()
        keys.append(Loopback(tmp_path, problem(), method, nodes=3).node(node).identity.public)
    secure = Secure(nodes=tuple(keys))
    nodes = Remote(Loopback(tmp_path, problem(), method, nodes=3, stages=[secure]))
    over_nodes = run(nodes, method, stages=[secure])
    assert_same(over_nodes, run(Local(), method))
    plain = run(Local(), method, stages=[])
    for a, b in zip(over_nodes.history, plain.history, strict=True):
        assert b.gram is None or np.allclose(a.gram or (), b.gram, rtol=1e-3, atol=1e-4)
    assert torch.allclose(x_of(over_nodes), x_of(plain), atol=1e-4)
    assert list(tmp_path.glob("*/*/*/secure-*")) == []  # no seed is left on any disk


def test_a_node_with_secure_sums_sends_no_reply_that_is_not_masked(tmp_path: Path) -> None:
    nodes = Remote(Loopback(tmp_path, problem(), SKETCH, nodes=3, stages=[Secure()]), start_deadline=0.1)
    with pytest.raises(RuntimeError, match="replies to no ask of a single trip"):
        run(nodes, stages=[])


def test_nodes_that_do_not_know_each_other_make_no_sum(tmp_path: Path) -> None:
    """The nodes know other keys than the server's list has, as when a server tries to bring in nodes of its own."""
    stranger = NodeIdentity(tmp_path).public
    nodes = Remote(Loopback(tmp_path, problem(), SKETCH, nodes=3, stages=[Secure(nodes=(stranger,) * 3)]))
    result = run(nodes, rounds=1, on_failure="skip")
    assert "0 answered in 'share'" in (result.history[0].undone or "")


def test_a_node_refuses_keys_other_than_those_it_saw_first(tmp_path: Path) -> None:
    """Node 2 is replaced by one with another key, as when a server brings in a node of its own; the server is new, too,
    and takes it, but the two other nodes do not. They accept it when its key is deleted from their files."""
    nodes = Remote(Loopback(tmp_path, problem(), SKETCH, nodes=3, stages=[Secure()]))
    before = run(nodes, rounds=1, on_failure="skip")
    assert_same(before, run(Local(), rounds=1, on_failure="skip"))
    shutil.rmtree(tmp_path / "node-2")
    refused = run(nodes, rounds=1, on_failure="skip").history[0]
    assert "but 2 answered in 'share'" in (refused.undone or "")  # clients 2 and 5 of node 2 itself
    assert "must be one of the node with key" in (refused.undone or "")
    for peers in tmp_path.glob("node-*/*/peers-3.json"):
        known = json.loads(peers.read_text())
        peers.write_text(json.dumps({node: key for node, key in known.items() if node != "2"}))
    assert_same(run(nodes, rounds=1, on_failure="skip"), before)


def test_unequal_clients_with_weights_and_objectives_of_their_own() -> None:
    owns = [["f0"], ["f1"], ["f0", "f1"], ["f0"], ["f1"], ["f0"], ["f0", "f1"]]
    unequal = replace(problem(), owns=owns, weights=[1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])
    secure, plain = (run(Local(), on=unequal, stages=stages) for stages in ([Secure()], []))
    assert torch.allclose(x_of(secure), x_of(plain), atol=1e-4)
    assert np.allclose(secure.history[-1].gram or (), plain.history[-1].gram or (), rtol=1e-3, atol=1e-4)


def test_an_objective_with_too_few_owners_for_a_sum_undoes_the_round() -> None:
    owns = [["f0"], ["f0"], *[["f1"]] * 5]
    result = run(Local(), on=replace(problem(), owns=owns), rounds=1, on_failure="skip")
    assert "needs 3 owners of each objective, or none, but objective 0 has 2" in (result.history[0].undone or "")


def test_secure_sums_of_a_private_run_have_noise() -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, sampling="fixed-size", clip=0.5)
    method = replace(SKETCH, gram=Sketch(bits=32, correction=False))
    first, second = (run(Local(), method, stages=[Secure(), privacy]) for _ in range(2))
    assert first.epsilon == second.epsilon
    assert not torch.equal(x_of(first), x_of(second))


@pytest.mark.parametrize("bits", [8, 12, 16, 32])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_what_is_decoded_of_one_client_is_within_its_bound(bits: int, scale: float) -> None:
    """Random and adversarial: the sum changes by at most the bound when a client comes or goes."""
    federation, secure = quadratics(clients=N, d=300), Secure(bits=bits)
    channels = FedAvg().channels([Clip(0.5), secure])
    sizes = server_of(federation).sizes
    code = SumCode(secure, channels, ["train"], sizes, 10, 3)
    random = torch.Generator().manual_seed(bits)
    one = torch.zeros(300, dtype=torch.float64)
    one[7] = 1
    for vector in (one, torch.ones(300).double(), torch.randn(300, generator=random).double()):
        update = scale * vector / vector.norm()
        codes = code.encode(Message(**{"train/update": update}), random)
        decoded = code.decode(codes)["train/update"]
        assert decoded.norm() <= 0.5
        if scale < 1 and bits == 32:
            assert torch.allclose(decoded, update, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"method": FedCMOO()}, r"SketchedJacobian do not; take gram=Sketch\(bits=32\)"),
        ({"method": FedCMOO(gram=TwoWay())}, r"take gram=Sketch\(bits=32\)"),
        ({"method": FedAvg(update=Rotated(), update_budget=0.5)}, "Compressed do not; take update=None"),
        ({"on": classification()}, "GroupNorm in place of BatchNorm"),
        ({"clients_per_round": 2}, "at least 3 clients, but got 2"),
        ({"engine": Pool()}, "engine is Pool"),
        (
            {"stages": [Secure(bits=8)], "on": quadratics(clients=30), "clients_per_round": 30},
            "at least 10 for sums",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_work_starts(settings: dict[str, Any], error: str, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"engine": Local(), "folder": tmp_path / "run", **settings}
    with pytest.raises(ValueError, match=error):
        run(**chosen)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"bits": 33}, "from 8 to 32"),
        ({"bound": 0.0}, "positive"),
        ({"smallest": 2}, "at least 3"),
        ({"nodes": ("abc",)}, "64 hexadecimal digits"),
    ],
)
def test_wrong_settings_are_refused(settings: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Secure(**settings)
