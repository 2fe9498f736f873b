"""Automatic mixed precision: where the hardware has it, the model computes in bfloat16 and everything else does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedcmoo import FedCMOO, fit
from fedcmoo.engines import Local
from fedcmoo.parameters import FlatModel
from tests.core.problems import classification


def test_outputs_are_rounded_and_gradients_are_not() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Linear(8, 4)
        inputs = torch.randn(16, 8)
    exact = module(inputs)
    model = FlatModel(module, precision="bfloat16")
    outputs = model(inputs)
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs.detach(), outputs.detach().bfloat16().float())
    assert torch.allclose(outputs, exact, atol=0.05)
    outputs.square().mean().backward()
    assert model.grad.dtype == torch.float32
    assert model.grad.norm() > 0


def test_needs_the_hardware() -> None:
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        result = fit(classification(), FedCMOO(local_steps=1), 1, engine=Local(precision="bfloat16"))
        assert len(result.history) == 1
    else:
        with pytest.raises(ValueError, match="'bfloat16' needs hardware support, but 'cpu' has none"):
            Local(precision="bfloat16")
