"""The server's optimizer against torch's on the mean update, which quadratics have in closed form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fedcmoo import FedAvg, FedCMOO, fit
from fedcmoo.config import RunConfig
from fedcmoo.optimizers import SGD, Adagrad, Adam, Optimizer
from tests.core.problems import centres, classification, quadratics


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (Adam(eps=1e-3), lambda p: torch.optim.Adam(p, lr=0.1, eps=1e-3)),
        (Adagrad(), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    ],
)
def test_the_server_steps_as_torch_does_on_the_mean_update(
    ours: Optimizer, torchs: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
) -> None:
    """K exact steps on ½ ||x - c_i||² move a client by (1 - (1 - η)^K) (x - c_i)."""
    problem = quadratics(M=1, d=5)
    method = FedAvg(client_lr=0.2, server_lr=0.1, local_steps=4, batch_size=None, server=ours)
    result = fit(problem, method, rounds=9, clients_per_round=problem.N)
    x = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    reference = torchs([x])
    for _ in range(9):
        x.grad = (1 - 0.8**4) * (x.detach() - centres(problem)[0])
        reference.step()
    assert torch.allclose(next(result.model.parameters()), x, atol=1e-12)


def test_a_checkpoint_has_the_optimizers_state(tmp_path: Path) -> None:
    problem, method = classification(), FedCMOO(client_lr=0.1, server_lr=0.01, local_steps=2, server=Adam())
    whole = fit(problem, method, rounds=4, clients_per_round=3)
    fit(problem, method, rounds=2, clients_per_round=3, folder=tmp_path)
    resumed = fit(problem, method, rounds=4, clients_per_round=3, folder=tmp_path, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def test_a_configuration_names_the_servers_optimizer() -> None:
    config = RunConfig.from_table({"method": {"name": "fedcmoo", "server": {"name": "yogi", "beta2": 0.99}}})
    assert RunConfig.from_table(config.to_table()) == config
    assert config.to_table()["method"]["server"] == {"name": "yogi", "beta1": 0.9, "beta2": 0.99, "eps": 1e-3}


def test_the_servers_rate_decays_between_two_rounds() -> None:
    """Full steps of one client to its optimum c: x <- x - η_t (x - c), with η_t written out."""
    problem = quadratics(M=1, d=3, clients=1)
    method = FedAvg(client_lr=1.0, local_steps=1, batch_size=None, server_lr=0.8, decay=[1, 3])
    model = fit(problem, method, rounds=5, clients_per_round=1).model
    left = 1.0
    for rate in (0.8, 0.8, 0.4, 0.4, 0.4):
        left *= 1 - rate
    assert torch.allclose(next(model.parameters()), (1 - left) * centres(problem)[0])


@pytest.mark.parametrize("decay", [[5], [5, 5], [-1, 4]])
def test_a_decay_is_two_rounds_in_order(decay: list[int]) -> None:
    with pytest.raises(ValueError, match="decay must be two rounds a < b"):
        FedAvg(decay=decay)
