"""Messages, the flat model, optimizers, sampling, data and callbacks, each against something independent."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from fedcmoo import FedAvg, FedCMOO, Objective, Problem, fit
from fedcmoo.files import write_atomically
from fedcmoo.gram import Exact
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.optimizers import SGD, Adagrad, Adam, Optimizer, Yogi
from fedcmoo.parameters import FlatModel
from fedcmoo.rounds import Server, Sizes
from tests.core.problems import classification, quadratics


def test_messages_survive_the_wire() -> None:
    message = Message(
        a=torch.randn(3, 4).T, b=torch.arange(5, dtype=torch.int32), c=torch.tensor(2.5, dtype=torch.float64)
    )
    back = Message.decode(message.encode())
    assert set(back) == {"a", "b", "c"}
    assert all(torch.equal(back[name], message[name]) and back[name].dtype == message[name].dtype for name in back)
    assert message.nbytes == 12 * 4 + 5 * 4 + 8
    assert message.size == len(message.encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x04K\x01.", b"x" * 100, struct.pack("<Q", 2**62 + 1) + b"{}", Message(a=torch.ones(3)).encode()[:-1]],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessageError):
        Message.decode(data)


def test_oversized_messages_are_refused_unread() -> None:
    with pytest.raises(BadMessageError, match="at most 10 bytes"):
        Message.decode(Message(a=torch.ones(3)).encode(), limit=10)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(b=torch.ones(2)), "must send"),
        (Message(a=torch.ones(2), b=torch.ones(2)), "must send"),
        (Message(a=torch.ones(3)), "shape"),
        (Message(a=torch.ones(2, 1)), "shape"),
        (Message(a=torch.ones(2, dtype=torch.float64)), "float32"),
        (Message(a=torch.tensor([1.0, torch.nan])), "finite"),
        (Message(a=torch.tensor([torch.inf, -torch.inf])), "finite"),
    ],
)
def test_unexpected_messages_are_refused_by_name(message: Message, why: str) -> None:
    with pytest.raises(BadMessageError, match=f"client 7.*{why}"):
        check(message, {"a": Field((2,))}, "client 7")


def test_huge_finite_values_pass() -> None:
    check(Message(a=torch.full((2,), 3e38)), {"a": Field((2,))}, "client 7")  # their sum overflows


class Convolution(nn.Module):
    """Convolutions, a tied weight and a frozen parameter."""

    shared = ("conv",)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 5)
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.tied = nn.Linear(5, 5)
        self.tied.weight = self.head.weight
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        z = self.conv(inputs).mean(dim=(2, 3))
        out: Tensor = self.tied(self.head(z)) * self.frozen
        return out


def test_the_flat_model_computes_what_the_module_computes() -> None:
    module = Convolution()
    flat = FlatModel(copy.deepcopy(module), lambda name: name.startswith("conv"))
    inputs = torch.randn(4, 3, 6, 6)
    loss, same = module(inputs).square().sum(), flat.module(inputs).square().sum()
    assert torch.allclose(loss, same, rtol=1e-5)
    loss.backward()
    same.backward()
    assert flat.d == 3 * 5 * 9 + 5 + 25 + 5 + 5
    assert flat.d_shared == 3 * 5 * 9 + 5
    conv = module.conv.weight.grad
    assert conv is not None
    assert torch.allclose(flat.grad[: 3 * 5 * 9].sort().values, conv.flatten().sort().values, atol=1e-4)
    flat.x.sub_(flat.grad, alpha=0.1)
    torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1).step()
    for (name, p), (_, q) in zip(module.named_parameters(), flat.module.named_parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-4), name


def test_mixed_dtypes_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match="one dtype"):
        FlatModel(module)


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (SGD(), lambda p: torch.optim.SGD(p, lr=0.05)),
        (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
        (Adam(), lambda p: torch.optim.Adam(p, lr=0.05)),
        (Adam(0.8, 0.95, 1e-6), lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6)),
        (Adagrad(), lambda p: torch.optim.Adagrad(p, lr=0.05)),
    ],
)
def test_optimizers_step_as_torchs_do(ours: Optimizer, torchs) -> None:  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, generator=g, dtype=torch.float64)
    parameter = nn.Parameter(x.clone())
    state: dict[str, torch.Tensor] = {}
    reference = torchs([parameter])
    for _ in range(10):
        parameter.grad = torch.randn(20, generator=g, dtype=torch.float64)
        ours.step(x, parameter.grad, 0.05, state)
        reference.step()
    assert torch.allclose(x, parameter, atol=1e-12)


def test_yogis_second_moment_grows_by_equal_amounts_and_forgets_slowly() -> None:
    """For a constant gradient g, v_t = t (1 - β2) g² while that is below g²; for small gradients after it, v falls by
    their squares only."""
    yogi, x, state = Yogi(beta2=0.9), torch.zeros(1, dtype=torch.float64), dict[str, torch.Tensor]()
    expected = 0.0
    for t in range(1, 6):
        yogi.step(x, torch.tensor([2.0], dtype=torch.float64), 0.1, state)
        expected -= 0.1 * 2 / (np.sqrt(t * 0.1 * 4 / (1 - 0.9**t)) + 1e-3)
    assert float(x) == pytest.approx(expected)
    yogi.step(x, torch.tensor([0.1], dtype=torch.float64), 0.1, state)
    assert float(state["v"]) == pytest.approx(5 * 0.1 * 4 - 0.1 * 0.01)


def test_cohorts_are_uniform_without_replacement() -> None:
    counts = np.zeros(20)
    server = Server(Sizes(1, 1, 1), 0, 20, torch.zeros(1), torch.zeros(0), torch.zeros(0), np.ones(1))
    for t in range(4000):
        server.round = t
        server.start_round(5)
        assert len(set(server.cohort)) == 5
        assert list(server.cohort) == sorted(server.cohort)
        counts[list(server.cohort)] += 1
    # Each client is in a cohort with probability 1/4: 1000 ± 27.4 times. Five standard deviations leave room for 20
    # of them.
    assert np.abs(counts - 1000).max() < 5 * 27.4


def test_traffic_is_what_arrays_and_headers_weigh() -> None:
    problem = quadratics(M=2, d=3)
    result = fit(problem, FedCMOO(gram=Exact()), rounds=3, clients_per_round=4)
    d, M, double = 3, 2, 8
    # Headers: a byte; for each array two bytes, its name, a byte for its dtype, and one for each dimension.
    jacobian, update, w = (
        1 + 2 + len("jacobian/h") + 1 + 2,
        1 + 2 + len("train/update") + 1 + 1,
        1 + 2 + len("train/w") + 1 + 1,
    )
    model = 1 + sum(2 + len(name) + 1 + 1 for name in ("x", "buffers", "counters"))
    assert result.history[0].up == {"jacobian": 4 * (M * d * double + jacobian), "train": 4 * (d * double + update)}
    assert result.history[0].down == {"jacobian": 4 * (d * double + model + 1), "train": 4 * (M * double + w)}
    assert result.uploaded == 3 * 4 * ((M + 1) * d * double + jacobian + update)
    assert result.fsmgda_upload == 3 * 4 * M * d * double


def test_datasets_tensors_and_dicts_are_the_same_data() -> None:
    problem = classification(dropout=0.0)
    datasets = [TensorDataset(x, y0, y1) for x, (y0, y1) in problem.clients]
    as_dict = [(x, {"first": y0, "second": y1}) for x, (y0, y1) in problem.clients]
    results = []
    for clients in (problem.clients, datasets, as_dict):
        twin = Problem(problem.model, problem.objectives, clients, test=problem.test, collate=_pairs)
        results.append(fit(twin, FedAvg(local_steps=2), 2, clients_per_round=3).scores)
    assert results[0] == results[1] == results[2]


def _pairs(samples: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    x, y0, y1 = (torch.stack(column) for column in zip(*samples, strict=True))
    return x, (y0, y1)


def test_clients_are_looked_up_only_when_asked() -> None:
    class Lazy(list):  # type: ignore[type-arg]
        def __init__(self, n: int) -> None:
            super().__init__(range(n))
            self.asked: set[int] = set()

        def __getitem__(self, i):  # type: ignore[no-untyped-def]
            self.asked.add(i)
            return torch.zeros(2, 1), torch.ones(2, 1, 3, dtype=torch.float64)

    problem = quadratics(M=1)
    problem.clients = Lazy(10_000)
    result = fit(problem, FedAvg(), rounds=2, clients_per_round=5)
    assert problem.clients.asked == {0} | {i for r in result.history for i in r.cohort}


def test_a_model_that_returns_a_dict() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            out = self.layer(inputs)
            return {"b": out[:, 1], "a": out[:, 0]}

    x = torch.randn(30, 2)
    data = [(x, {"a": x[:, 0], "b": -x[:, 1]})]
    objectives = [Objective("a", nn.functional.mse_loss), Objective("b", nn.functional.mse_loss)]
    result = fit(Problem(Named(), objectives, data, test=data[0]), FedAvg(local_steps=50, client_lr=0.3), 5)
    assert max(s["loss"] for s in result.scores.values()) < 1e-3
    assert json.loads(json.dumps(result.summary()))["rounds"] == 5


def test_files_written_atomically_are_as_readable_as_any_other(tmp_path: Path) -> None:
    write_atomically(tmp_path / "atomic", b"1")
    write_atomically(tmp_path / "atomic", b"2")
    (tmp_path / "plain").write_bytes(b"2")
    assert (tmp_path / "atomic").read_bytes() == b"2"
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {p.name for p in tmp_path.iterdir()} == {"atomic", "plain"}
