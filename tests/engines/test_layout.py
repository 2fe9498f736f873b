"""Models that flatten with `view`: they cannot compute channels-last, so the whole run is laid out contiguously."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from campaign.loopback import Loopback
from fedcmoo import FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.data.remote import RemoteClients
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.failures import ClientFailedError

METHOD = FedCMOO(client_lr=0.1, local_steps=2, batch_size=8)


class Net(nn.Module):
    """Two convolutions, flattened with `view` or `reshape`, and two heads."""

    def __init__(self, view: bool) -> None:
        super().__init__()
        self.view = view
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.convolutions = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3))
            self.heads = nn.ModuleList([nn.Linear(12, 2), nn.Linear(12, 3)])

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        z = self.convolutions(images)
        flat = z.view(len(z), -1) if self.view else z.reshape(len(z), -1)
        return tuple(head(flat) for head in self.heads)


def images(view: bool, clients: int = 4) -> Problem:
    g = torch.Generator().manual_seed(0)

    def draw(n: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = torch.randn(n, 2, 4, 4, generator=g)
        return x, ((x[:, 0, 0, 0] > 0).long(), torch.randint(3, (n,), generator=g))

    objectives = [Objective("sign", cross_entropy), Objective("noise", cross_entropy)]
    return Problem(Net(view), objectives, [draw(20) for _ in range(clients)], test=draw(30))


def trained(problem: Problem, engine: Engine) -> dict[str, Tensor]:
    return fit(problem, METHOD, 2, engine=engine, evaluate_every=1).model.state_dict()


def test_all_engines_fall_back_to_the_same_bits(tmp_path: Path) -> None:
    problem = images(view=True)
    assert not problem.channels_last
    local = trained(problem, Local())
    over_nodes = trained(images(view=True), Remote(Loopback(tmp_path, images(view=True), METHOD)))
    pool = trained(images(view=True), Pool(workers=2))
    for name, parameter in local.items():
        assert torch.equal(parameter, pool[name]), name
        assert torch.equal(parameter, over_nodes[name]), name


def test_the_layout_changes_the_time_and_not_the_mathematics() -> None:
    with_reshape = images(view=False)
    assert with_reshape.channels_last
    method = FedAvg(client_lr=0.1, local_steps=2, batch_size=8)
    viewed = fit(images(view=True), method, 2, engine=Local()).model.state_dict()
    reshaped = fit(with_reshape, method, 2, engine=Local()).model.state_dict()
    for name, parameter in viewed.items():
        assert torch.allclose(parameter, reshaped[name], atol=1e-5), name


def test_a_server_without_data_refuses_nodes_of_another_layout(tmp_path: Path) -> None:
    """It cannot know that the model needs a contiguous layout, in which parameters have another order."""
    problem = images(view=True)
    blind = Problem(Net(view=True), problem.objectives, RemoteClients(problem.N))
    with pytest.raises(ClientFailedError, match="channels_last=True"):
        fit(blind, METHOD, 1, engine=Remote(Loopback(tmp_path, problem, METHOD), start_deadline=2.0))


class Scan(NamedTuple):
    """Inputs with names."""

    image: Tensor
    age: Tensor


class NeedsNames(nn.Module):
    """A model that reads its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, scan: Scan) -> Tensor:
        risk: Tensor = self.linear(torch.cat([scan.image.mean(dim=(2, 3)), scan.age], dim=1))
        return risk.squeeze(1)


def test_named_tuples_stay_named_tuples() -> None:
    clients = [(Scan(torch.randn(6, 2, 3, 3), torch.randn(6, 1)), torch.randn(6)) for _ in range(2)]
    problem = Problem(NeedsNames(), [Objective("risk", mse_loss)], clients, test=clients[0])
    assert fit(problem, FedAvg(local_steps=1, batch_size=4), 1, engine=Local()).scores["risk"]["loss"] > 0
