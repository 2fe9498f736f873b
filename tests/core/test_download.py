"""The model in fewer bits: what arrives, what it costs, and training from it."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from fedcmoo import FedAvg, FedCMOO, fit
from fedcmoo.config import RunConfig
from fedcmoo.download import Download, send
from fedcmoo.engines import Local, Pool
from fedcmoo.parameters import State
from tests.core.problems import centres, classification, quadratics

SHORT: list[Download] = ["bfloat16", "8-bit"]
D = 40_000
MODEL = State(torch.randn(D, generator=torch.Generator().manual_seed(1)), torch.ones(3), torch.tensor([7]))


@pytest.mark.parametrize(
    ("download", "share", "error"), [("full", 1, 0), ("bfloat16", 0.5, 3e-6), ("8-bit", 0.26, 1e-4)]
)
def test_what_arrives_is_close_to_the_model_at_a_share_of_its_bytes(
    download: Download, share: float, error: float
) -> None:
    sent = send(MODEL, download, 0, 0)
    assert (sent.state.x - MODEL.x).square().sum() <= error * MODEL.x.square().sum()
    assert sent.message.nbytes <= share * 4 * D + 3 * 4 + 8
    assert torch.equal(sent.state.buffers, MODEL.buffers)
    assert torch.equal(sent.state.counters, MODEL.counters)


def test_errors_of_different_rounds_average_out() -> None:
    """The rotated code is unbiased: the mean of 64 roundings is eight times nearer than one."""
    errors = torch.stack([send(MODEL, "8-bit", 0, t).state.x - MODEL.x for t in range(64)])
    one, mean = errors.norm(dim=1).mean(), errors.mean(dim=0).norm()
    assert 0.1 < mean / one < 0.15


@pytest.mark.parametrize("download", SHORT)
def test_training_reaches_the_optimum_of_a_model_that_arrives_rounded(download: Download) -> None:
    problem = quadratics(M=1, d=5)
    method = FedAvg(client_lr=0.1, local_steps=2, batch_size=None)
    model = fit(problem, method, rounds=60, clients_per_round=problem.N, download=download).model
    x = next(model.parameters()).detach()
    assert torch.allclose(x, centres(problem)[0], atol=2e-2)


def test_bytes_down_are_those_that_are_sent() -> None:
    problem = classification()
    down = {}
    for download in get_args(Download):
        record = fit(problem, FedAvg(), rounds=1, clients_per_round=3, download=download).history[0]
        down[download] = record.down["train"]
    parameters = sum(p.numel() for p in problem.model.parameters())
    assert down["full"] - down["bfloat16"] == 3 * 2 * parameters
    assert down["8-bit"] < down["bfloat16"]


@pytest.mark.parametrize("download", SHORT)
def test_engines_agree(download: Download) -> None:
    ends = [
        list(
            fit(
                classification(), FedCMOO(), rounds=2, clients_per_round=4, engine=e, download=download
            ).model.parameters()
        )
        for e in (Local(), Pool(workers=2))
    ]
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="download must be one of full, bfloat16, 8-bit, but got 'float16'"):
        fit(quadratics(), FedAvg(), rounds=1, download="float16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="download must be"):
        RunConfig.from_table({"download": "float16"})
