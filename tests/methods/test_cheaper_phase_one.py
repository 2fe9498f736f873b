"""Phase one on fewer samples and on fewer parameters, against gradients that autograd gives for them directly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedcmoo import FedCMOO, Objective, Problem, fit
from fedcmoo.engines import Local, Pool
from fedcmoo.gram import Exact, TwoWay
from fedcmoo.methods import MGDA
from fedcmoo.weights import MinNorm
from fedcmoo.worker import Worker
from tests.core.problems import centres, classification, quadratics


def test_phase_one_has_a_batch_size_of_its_own() -> None:
    """G of all samples, beside local steps on one sample: at x = 0 the gradients are the means of -c."""
    problem = quadratics(M=2, d=3, samples=4)
    method = FedCMOO(batch_size=1, gram_batch_size=4, gram=Exact(), weights=MinNorm(), client_lr=0.1)
    record = fit(problem, method, rounds=1, clients_per_round=problem.N).history[0]
    c = centres(problem)
    assert torch.allclose(torch.tensor(record.gram, dtype=torch.float64), c @ c.T)


def test_local_steps_do_not_depend_on_the_batch_of_phase_one() -> None:
    """One local step with weights that G does not change: a sample a client, whatever phase one looked at."""
    problem = quadratics(M=1, samples=4)
    ends = [
        next(fit(problem, FedCMOO(batch_size=1, gram_batch_size=n, local_steps=1), rounds=1).model.parameters())
        for n in (None, 2, 4)
    ]
    assert torch.allclose(ends[0], ends[1])
    assert torch.allclose(ends[0], ends[2])


def last_layer_gram(problem: Problem) -> Tensor:
    """The Gram matrix of both objectives' gradients of the encoder's linear layer, at the initial model."""
    initial: Any = problem.model
    rows = torch.zeros(2, sum(p.numel() for p in initial.encoder[0].parameters()))
    for inputs, targets in problem.clients:
        model = copy.deepcopy(initial).train()
        outputs = model(inputs)
        for k, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            loss = torch.nn.functional.cross_entropy(output, target)
            grads = torch.autograd.grad(loss, list(model.encoder[0].parameters()), retain_graph=True)
            rows[k] += torch.cat([grad.flatten() for grad in grads]) / len(problem.clients)
    return rows @ rows.T


@pytest.mark.parametrize("limit", [0, 2**20])
def test_the_gram_matrix_covers_the_parameters_that_are_called_shared(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all gradients are kept for the first local step, or passes stop at the layer that G is made of."""
    monkeypatch.setattr("fedcmoo.client.REUSE_LIMIT", limit)
    problem = classification(dropout=0.0)
    problem = Problem(
        problem.model, problem.objectives, problem.clients, test=problem.test, shared=["encoder.0"], name="layer"
    )
    method = FedCMOO(batch_size=None, gram=Exact(), local_steps=2)
    result = fit(problem, method, rounds=1, clients_per_round=problem.N)
    gram = torch.tensor(result.history[0].gram, dtype=torch.float32)
    assert torch.allclose(gram, last_layer_gram(problem), rtol=1e-4)
    heads, before = (model.get_submodule("heads").parameters() for model in (result.model, problem.model))
    assert not any(torch.equal(a, b) for a, b in zip(heads, before, strict=True))  # all parameters are trained


def test_gradients_of_all_parameters_are_there_for_methods_that_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, ends = classification(), []
    for limit in (0, 2**20):
        monkeypatch.setattr("fedcmoo.client.REUSE_LIMIT", limit)
        ends.append(list(fit(problem, MGDA(), rounds=2, clients_per_round=4).model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


class Layers(nn.Module):
    """Two layers and five linear heads, the last of them on the first layer."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 7)
            self.heads = nn.ModuleList([*(nn.Linear(7, 3) for _ in range(4)), nn.Linear(8, 3)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        low = self.first(inputs).tanh()
        high = self.last(low).tanh()
        return [head(low if k == 4 else high) for k, head in enumerate(self.heads)]


def five_objectives(shared: str) -> Problem:
    g = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(12, 6, generator=g), tuple(torch.randint(3, (5, 12), generator=g).unbind())) for _ in range(6)
    ]
    objectives = [Objective(f"f{k}", torch.nn.functional.cross_entropy) for k in range(5)]
    return Problem(Layers(), objectives, clients, shared=[shared])


@pytest.mark.parametrize(("shared", "passes"), [("first", 5), ("last", 0)])
def test_backward_passes_stop_at_the_first_shared_layer(shared: str, passes: int) -> None:
    worker = Worker(five_objectives(shared), {}, seed=0)
    client = worker.client(worker.model.state, round=0, i=0)
    found: list[Tensor] = []
    first: Any = worker.model.module.get_parameter("first.weight")
    first.register_hook(found.append)
    h = client.shared_jacobian(None).clone()
    assert len(found) == passes
    assert torch.equal(h, client.jacobian(None)[:, : worker.sizes.d_shared])
    assert (shared == "last") == bool((h[4] == 0).all())  # the objective that the last layer does not affect


def test_stopping_early_changes_only_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first local step computes the gradient that it otherwise takes from phase one."""
    ends = []
    for many in (4, 100):
        monkeypatch.setattr("fedcmoo.client.MANY", many)
        result = fit(five_objectives("last"), FedCMOO(local_steps=2, batch_size=4), rounds=2)
        ends.append(torch.nn.utils.parameters_to_vector(result.model.parameters()))
    assert torch.allclose(ends[0], ends[1], atol=1e-6)


def test_engines_stop_early_alike() -> None:
    """With other numbers of workers, and where an ask's gradients are not kept for the next."""
    problem, method = five_objectives("last"), FedCMOO(local_steps=2, batch_size=4, gram=TwoWay())
    here, there = (fit(problem, method, 2, engine=engine).model.parameters() for engine in (Local(), Pool(workers=2)))
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))
