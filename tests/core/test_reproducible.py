"""Equal seeds give equal histories; neither the order of clients nor the batches of an evaluation matter."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedcmoo import FSMGDA, FedAvg, FedCMOO, Problem, Result, evaluation, fit
from fedcmoo.engines import Local
from fedcmoo.messages import Message
from fedcmoo.methods import Method
from fedcmoo.optimizers import SGD, Adam
from fedcmoo.rounds import Server
from fedcmoo.worker import Request, Worker
from tests.core.problems import classification

METHODS: list[Method] = [
    FedCMOO(local_steps=3, batch_size=16),
    FSMGDA(local_steps=3, batch_size=16),
    FedAvg(local_steps=3, batch_size=16, optimizer=Adam(), client_lr=0.01),
    FedCMOO(local_steps=2, batch_size=16, optimizer=SGD(momentum=0.9), client_lr=0.05),
]


def run(problem: Problem, method: Method, seed: int = 0, **settings: object) -> Result:
    return fit(problem, method, rounds=4, clients_per_round=4, seed=seed, evaluate_every=2, engine=Local(), **settings)  # type: ignore[arg-type]


def parameters(result: Result) -> Tensor:
    return torch.cat([v.reshape(-1).double() for v in result.model.state_dict().values()])


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_histories(method: Method) -> None:
    torch.manual_seed(1)
    a = run(classification(), method)
    torch.manual_seed(2)  # the global generator must not matter
    b = run(classification(), method)
    assert [r.without_time() for r in a.history] == [r.without_time() for r in b.history]
    assert torch.equal(parameters(a), parameters(b))
    other = run(classification(), method, seed=1)
    assert not torch.equal(parameters(a), parameters(other))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(classification(), METHODS[0])
    assert torch.equal(torch.rand(3), expected)


INITIAL = classification().model.state_dict()


def reply(worker: Worker, messages: Mapping[str, Message], i: int) -> Message:
    """The reply of client i to an ask about the initial model in the first round."""
    worker.model.module.load_state_dict(INITIAL)
    state = worker.model.state
    return worker.reply(state, Request(0, state.version, messages), i)[0]


def test_the_order_in_which_clients_are_asked_does_not_matter() -> None:
    problem, method = classification(), METHODS[0]
    replies = []
    for order in ([1, 4, 6], [6, 1, 4]):
        worker = Worker(problem, method.channels(), seed=0)
        message = Message(w=torch.tensor([0.3, 0.7], dtype=torch.float64))
        replies.append({i: reply(worker, {"train": message}, i) for i in order})
    for i in (1, 4, 6):
        assert torch.equal(replies[0][i]["train/update"], replies[1][i]["train/update"])
        assert torch.equal(replies[0][i]["train/buffers"], replies[1][i]["train/buffers"])


def test_phase_one_is_computed_again_if_it_was_not_kept() -> None:
    """A client asked to train on another worker than the one that knew its Jacobian gives the same bits."""
    problem, method = classification(), METHODS[0]
    workers = [Worker(problem, method.channels(), seed=0) for _ in range(2)]
    state = workers[0].model.state
    w = Message(w=torch.tensor([0.3, 0.7], dtype=torch.float64))
    server = Server(workers[0].sizes, 0, problem.N, state.x, state.buffers, state.counters, w["w"].numpy(), cohort=(3,))
    ask = next(method.round(server))  # phase one
    reply(workers[0], ask.messages, 3)
    kept = reply(workers[0], {"train": w}, 3)
    again = reply(workers[1], {"train": w}, 3)
    assert torch.equal(kept["train/update"], again["train/update"])
    assert torch.equal(kept["train/buffers"], again["train/buffers"])


def test_the_batches_of_an_evaluation_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = classification()
    worker = Worker(problem, {}, seed=0)
    totals = []
    for batch in (7, 300, 1000):
        monkeypatch.setattr(evaluation, "BATCH", batch)
        totals.append(evaluation.evaluate(problem, worker.model, problem.test, 0, len(problem.test))[0])
    assert torch.allclose(totals[0], totals[1], rtol=1e-6)
    assert torch.equal(totals[1], totals[2])


def test_buffers_are_averaged_and_counters_newest() -> None:
    """BatchNorm after one round of FedAvg: the mean of what the clients' own layers hold, and their number of
    batches."""
    problem = classification(clients=3)
    method = FedAvg(local_steps=2, batch_size=16)
    worker = Worker(problem, method.channels(), seed=0)
    w = Message(w=torch.tensor([0.5, 0.5], dtype=torch.float64))
    expected = torch.stack([reply(worker, {"train": w}, i)["train/buffers"] for i in range(3)]).mean(dim=0)
    result = fit(problem, method, rounds=1, clients_per_round=3, engine=Local())
    norm = result.model.get_submodule("encoder.1")
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert torch.allclose(torch.cat([norm.running_mean, norm.running_var]), expected, atol=1e-6)
    assert int(norm.num_batches_tracked) == 2
