"""Private heads stay at their clients, and every client is evaluated with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from campaign.loopback import Loopback
from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.callbacks import Callback
from fedcmoo.callbacks.base import Training
from fedcmoo.checkpoint import Checkpoint
from fedcmoo.drift import FedProx, Scaffold
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.history import Record, read_history
from fedcmoo.methods import Method
from fedcmoo.optimizers import SGD, GradientAt
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.worker import Worker
from tests.core.problems import CLIENTS, TwoHeads, personal
from tests.core.runs import assert_same

SMALL: dict[str, Any] = {"local_steps": 3, "batch_size": 8}


def private() -> Problem:
    return personal(private=("heads",))


class Keep(Callback):
    """What the server has at the end."""

    def on_start(self, training: Training) -> None:
        self.training = training


METHODS: list[Method] = [
    FedCMOO(**SMALL),
    FSMGDA(**SMALL),
    FedAvg(drift=Scaffold(), **SMALL),
    FedAvg(drift=FedProx(mu=0.1), **SMALL),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_every_engine_gives_the_same_bits_and_private_parameters_stay_where_they_are(
    method: Method, tmp_path: Path
) -> None:
    problem = private()
    nodes = Loopback(tmp_path, problem, method, nodes=3)
    engines: list[Engine] = [Local(), Pool(workers=2), Remote(nodes)]
    runs = [fit(problem, method, 3, clients_per_round=4, engine=engine, evaluate_every=1) for engine in engines]
    assert_same(*runs)
    public = sum(p.numel() for p in problem.model.get_submodule("encoder").parameters())
    d = sum(p.numel() for p in problem.model.parameters())
    for _, packet in nodes.sent:
        if "model" in packet.blobs:  # parameters, BatchNorm's means and variances and its counter; a header
            assert len(packet.blobs["model"]) < 4 * (public + 16) + 8 + 400 < 4 * d + 400
    with pytest.raises(ValueError, match="client 1 are on its own node, not at the server"):
        runs[2].client_model(1)
    changed = runs[0].model.state_dict()
    assert not torch.equal(changed["encoder.0.weight"], problem.model.state_dict()["encoder.0.weight"])
    assert torch.equal(changed["heads.0.weight"], problem.model.state_dict()["heads.0.weight"])


def test_a_gradient_at_an_earlier_point_is_also_at_its_private_parameters() -> None:
    """STORM compares the gradients of a batch at two points of local training, which differ in both parts."""
    worker = Worker(private(), {}, seed=0)
    steps: list[tuple[Tensor, Tensor]] = []

    def compare(y: Tensor, grad: Tensor, gradient_at: GradientAt | None) -> None:
        assert gradient_at is not None
        if steps:
            point, before = steps[-1]
            assert torch.allclose(gradient_at(point), before, atol=1e-6)
            assert not torch.allclose(gradient_at(point[: len(grad)]), before, atol=1e-6)  # the private part has moved
        steps.append((y.clone(), grad.clone()))

    worker.client(worker.model.state, round=0, i=1).train([0.5, 0.5], 4, 0.5, SGD(), None, correct=compare)
    assert len(steps) == 4


def test_updates_cost_what_public_parameters_do() -> None:
    problem = private()
    public = sum(p.numel() for p in problem.model.get_submodule("encoder").parameters())
    result = fit(problem, FedAvg(**SMALL), 1, clients_per_round=4, engine=Local())
    assert 0 < result.history[0].up["train"] - 4 * (4 * (public + 16) + 8) < 4 * 100  # BatchNorm's buffers, headers


def test_clients_that_disagree_learn_with_private_heads_only() -> None:
    """Labels are renamed at every client, so one model for all can be right in a third of the cases."""
    last = [
        fit(problem, FedCMOO(client_lr=0.2, **SMALL), 40, clients_per_round=CLIENTS, engine=Local()).history[-1]
        for problem in (private(), personal())
    ]
    (own, common) = (record.client_test["first"]["accuracy"]["mean"] for record in last if record.client_test)
    assert own > 0.75
    assert common < 0.5


def test_with_one_step_a_private_head_takes_its_own_gradient_step() -> None:
    """FedAvg over all clients: the head of client i moves by -lr ∇f_i, the body by the mean over clients."""
    problem = private()
    method = FedAvg(client_lr=0.1, local_steps=1, batch_size=None, weights=[1.0, 0.0])
    result = fit(problem, method, 1, clients_per_round=CLIENTS, engine=Local())
    bodies = []
    for i, (x, (target, _)) in enumerate(problem.clients):
        model = TwoHeads(dropout=0.0).train()
        loss = cross_entropy(model(x)[0], target)
        bodies.append(_flat(torch.autograd.grad(loss, list(model.encoder.parameters()), retain_graph=True)))
        head = list(model.heads[0].parameters())
        stepped = _flat(head) - 0.1 * _flat(torch.autograd.grad(loss, head))
        own = list(result.client_model(i).get_submodule("heads.0").parameters())
        assert torch.allclose(_flat(own), stepped, atol=1e-6)
    before, after = (_flat(list(m.get_submodule("encoder").parameters())) for m in (problem.model, result.model))
    assert torch.allclose(before - after, 0.1 * torch.stack(bodies).mean(dim=0), atol=1e-6)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


class StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def after_round(self, record: Record) -> bool:
        return record.round == self.rounds


@pytest.mark.parametrize("remote", [False, True])
def test_a_resumed_run_goes_on_with_the_private_parameters(remote: bool, tmp_path: Path) -> None:
    problem, method = private(), FedCMOO(**SMALL)

    def run(name: str, rounds: int, **settings: Any) -> list[Record]:
        engine = Remote(Loopback(tmp_path / f"nodes-{name}", problem, method, nodes=2)) if remote else Local()
        options: dict[str, Any] = {
            "clients_per_round": 4,
            "engine": engine,
            "evaluate_every": 2,
            "folder": tmp_path / name,
        }
        fit(problem, method, rounds, **options, **settings)
        return [record.without_time() for record in read_history(tmp_path / name / "history.jsonl")]

    whole = run("whole", 6)
    run("parts", 6, callbacks=[StopAfter(3)])
    assert run("parts", 6, resume=True) == whole
    checkpoint = Checkpoint.decode((tmp_path / "whole" / "checkpoint.safetensors").read_bytes())
    heads = [name for name in checkpoint.arrays if name.startswith("client.") and name.endswith("private/x")]
    assert bool(heads) is not remote  # nodes keep their own; the server has a digest


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"private": ("tail",)}, "private names 'tail', but the model has no trainable parameter under that name"),
        ({"private": ("encoder",)}, r"shared or private, but 'encoder\.0\.weight' is both"),
        ({"private": ("encoder", "heads"), "shared": "all"}, "not private, but all of them are"),
        ({"private": ("heads",), "test": (torch.zeros(1, 6), torch.zeros(1))}, "evaluated per client, but got test"),
        ({"client_test": [None]}, r"one entry per client \(6\), but has 1"),
    ],
)
def test_wrong_settings(settings: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        replace(personal(), **settings)


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="but MGDA's send gradients and train nothing"):
        fit(private(), MGDA(), 1, engine=Local())
    with pytest.raises(ValueError, match="privacy must cover all that clients send"):
        fit(personal(), FedAvg(**SMALL), 1, stages=[DifferentialPrivacy(epsilon=1.0)])


class OwnNorm(nn.Module):
    """BatchNorm in the private part: its statistics are private, too."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.own = nn.Linear(6, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.own(self.body(x))  # type: ignore[no-any-return]


def test_buffers_under_a_private_name_are_private() -> None:
    g, keep = torch.Generator().manual_seed(0), Keep()
    clients = [(torch.randn(20, 6, generator=g) + i, torch.randint(0, 3, (20,), generator=g)) for i in range(3)]
    problem = Problem(OwnNorm(), [Objective("class", cross_entropy)], clients, client_test=clients, private="own")
    fit(problem, FedAvg(local_steps=1, batch_size=None), 1, engine=Local(), callbacks=[keep])
    server = keep.training.server
    assert server.sizes.buffers == server.sizes.counters == 0
    for i, (x, _) in enumerate(clients):
        mean = problem.model.get_submodule("body")(x).mean(dim=0).detach()
        assert torch.allclose(server.client_states[i]["private/buffers"][:4], 0.1 * mean, atol=1e-5)
