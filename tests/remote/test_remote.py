"""Runs over nodes: equal to the local engine bit for bit, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from campaign.loopback import Loopback, LoopbackExchange
from fedcmoo import FSMGDA, FedCMOO, FedCMOOPref, Result, fit
from fedcmoo.client import Client
from fedcmoo.compression import Rotated
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.nodes import Outcome
from fedcmoo.engines.remote.protocol import Packet
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.failures import ClientFailedError
from fedcmoo.gram import TwoWay
from fedcmoo.messages import Field
from fedcmoo.methods import Method
from fedcmoo.rounds import Round, Server
from tests.core.problems import classification
from tests.core.runs import assert_same
from tests.core.stateful import ChangesTheModel, HeavyBall

SETTINGS = {"clients_per_round": 5, "seed": 1, "evaluate_every": 1}


def run(engine: Engine, method: Method, rounds: int = 4, **settings: object) -> Result:
    return fit(classification(), method, rounds, engine=engine, **{**SETTINGS, **settings})  # type: ignore[arg-type]


def over_nodes(folder: Path, method: Method) -> Remote:
    return Remote(Loopback(folder, classification(), method, nodes=3))


METHODS = [
    FedCMOO(local_steps=3, batch_size=16),
    FedCMOO(local_steps=3, batch_size=16, gram=TwoWay()),
    FedCMOOPref(local_steps=3, batch_size=16),
    FedCMOO(local_steps=3, batch_size=16, update=Rotated(), update_budget=0.6),
    FSMGDA(local_steps=2, batch_size=16),
    HeavyBall(local_steps=2, batch_size=16),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_same_bits_as_the_local_engine(method: Method, tmp_path: Path) -> None:
    assert_same(run(over_nodes(tmp_path, method), method), run(Local(), method))


def test_nodes_with_another_code_of_updates_are_refused(tmp_path: Path) -> None:
    """They would send entries in another order than the server expects, in messages that are otherwise valid."""
    server = FedCMOO(local_steps=3, batch_size=16, update=Rotated(), update_budget=0.6)
    node = replace(server, update=Rotated(adaptive=False))
    with pytest.raises(ClientFailedError, match="give server and clients the same method and stages"):
        run(over_nodes(tmp_path, node), server)


def test_a_model_that_changes_between_two_asks_is_the_same_on_every_engine(tmp_path: Path) -> None:
    method = ChangesTheModel(local_steps=3, batch_size=16)
    here = run(Local(), method, rounds=2)
    assert_same(run(Pool(workers=2), method, rounds=2), here)
    assert_same(run(over_nodes(tmp_path, method), method, rounds=2), here)


@pytest.mark.parametrize("engine", ["local", "pool", "nodes"])
def test_clients_with_memory_resume_bit_for_bit(engine: str, tmp_path: Path) -> None:
    """Two more rounds than the last checkpoint were done and are lost: the nodes' memories are ahead of the server."""
    method = HeavyBall(local_steps=2, batch_size=16)
    whole = run(Local(), method, rounds=8)
    nodes = over_nodes(tmp_path / "nodes", method)
    engines: dict[str, Engine] = {"local": Local(), "pool": Pool(workers=2), "nodes": nodes}
    folder = tmp_path / "run"
    run(engines[engine], method, rounds=3, folder=folder, checkpoint_every=3)
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    run(engines[engine], method, rounds=5, folder=folder, checkpoint_every=100, resume=True)
    for path, data in kept.items():
        path.write_bytes(data)
    assert_same(run(engines[engine], method, rounds=8, folder=folder, resume=True), whole)


def test_a_node_gets_each_model_once(tmp_path: Path) -> None:
    method = METHODS[0]
    remote = over_nodes(tmp_path, method)
    run(remote, method, rounds=2)
    assert isinstance(remote.transport, Loopback)
    asks = [(node, packet) for node, packet in remote.transport.sent if "version" in packet.values]
    sent = [(node, packet.values["version"]) for node, packet in asks if "model" in packet.blobs]
    assert len(sent) == len(set(sent)) < len(asks)


def test_a_cleared_disk_costs_only_another_download(tmp_path: Path) -> None:
    method = METHODS[0]
    remote = over_nodes(tmp_path, method)

    class ClearsDisks(FedCMOO):
        def round(self, server: Server) -> Round:
            steps = super().round(server)
            sums = yield next(steps)
            for model in tmp_path.glob("*/*/*/model"):
                model.unlink()
            yield from _rest(steps, sums)

    cleared = ClearsDisks(local_steps=3, batch_size=16)
    assert_same(run(remote, cleared), run(Local(), method))


def _rest(steps: Round, sums: object) -> Round:
    try:
        ask = steps.send(sums)  # type: ignore[arg-type]
        while True:
            ask = steps.send((yield ask))
    except StopIteration:
        return


def test_a_node_that_claims_the_clients_of_another_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever was first keeps them; the impostor has another key, since it has another disk."""
    method = METHODS[0]
    remote = over_nodes(tmp_path, method)
    assert isinstance(remote.transport, Loopback)
    transport = remote.transport

    class Joins(FedCMOO):
        def round(self, server: Server) -> Round:
            transport.partition[7] = 1  # claims the clients of node 1
            yield from super().round(server)

    joined = Joins(local_steps=3, batch_size=16)
    assert_same(run(remote, joined), run(Local(), method))
    asked = {node for node, packet in transport.sent if "version" in packet.values}
    assert 7 not in asked
    assert [record.args[0] for record in caplog.records if record.args] == [7]  # type: ignore[index]


def test_a_node_that_comes_back_under_another_id_keeps_its_clients(tmp_path: Path) -> None:
    method = METHODS[0]
    remote = over_nodes(tmp_path, method)
    assert isinstance(remote.transport, Loopback)
    transport = remote.transport

    class Restarts(FedCMOO):
        def round(self, server: Server) -> Round:
            if server.round == 1:
                del transport.partition[1]
                transport.partition[9] = 1
                (tmp_path / "node-1").rename(tmp_path / "node-9")
            yield from super().round(server)

    restarts = Restarts(local_steps=3, batch_size=16)
    assert_same(run(remote, restarts), run(Local(), method))


def test_same_bits_with_factorised_gradients_of_a_network(tmp_path: Path) -> None:
    """Matrices that arrive in a buffer lie at other addresses than those of this process, which BLAS may notice."""
    problem = TwoDigits(clients=6, train_pairs=120, validation_pairs=20, test_pairs=20).build(0)
    method = FedCMOO(gram=TwoWay(), local_steps=2, batch_size=8)
    remote = Remote(Loopback(tmp_path, problem, method, nodes=3))
    results = [fit(problem, method, 2, clients_per_round=6, engine=engine) for engine in (remote, Local())]
    assert_same(*results)


class NeverHasTheModel(Loopback):
    """Node 1 asks for the model whenever it is asked."""

    def send(self, kind: str, packets: Mapping[int, Packet], until: float) -> LoopbackExchange:
        return NoModelExchange(self, kind, packets)


class NoModelExchange(LoopbackExchange):
    def answers(self, until: float) -> Iterator[tuple[int, Outcome]]:
        for node, packet in self.left:
            asked = self.kind == "ask" and node == 1
            forever = Packet({"token": packet.values.get("token", ""), "needs_model": True})
            yield node, forever if asked else self.transport.node(node).handle(self.kind, packet)


class Raises(Stage):
    """The clients of node 1 raise."""

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        if client.i % 3 == 1:
            raise RuntimeError
        return arrays


def test_a_node_that_asks_for_the_model_forever_has_failed(tmp_path: Path) -> None:
    """The run is that of the other clients, including those after its own in client order."""
    method = METHODS[0]
    remote = Remote(NeverHasTheModel(tmp_path, classification(), method, nodes=3))
    attacked = run(remote, method, rounds=3, on_failure="skip")
    expected = run(Local(), method, rounds=3, on_failure="skip", stages=[Raises()])
    for mine, yours in zip(attacked.history, expected.history, strict=True):
        assert set(mine.failures) == set(yours.failures)
        assert all("must not ask for the model" in why for why in mine.failures.values())
        assert (mine.gram, mine.weights, mine.up) == (yours.gram, yours.weights, yours.up)
    for a, b in zip(attacked.model.state_dict().values(), expected.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
