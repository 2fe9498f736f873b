"""Parameter counts, shapes and shared parts of the image models."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from fedcmoo.models.images import CNN, LeNet, ResNet18, SharedEncoder
from fedcmoo.randomness import seeded


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("model", "shape", "outputs", "parameters", "encoder"),
    [
        (LeNet(), (1, 28, 28), (2, 10), 34_635, 28_515),
        (CNN(), (3, 32, 32), (2, 10), 1_726_508, 1_685_888),
        (ResNet18(40, 2), (3, 32, 32), (40, 2), 11_209_872, 11_168_832),
        (ResNet18(5, 8), (3, 32, 32), (5, 8), 11_189_352, 11_168_832),
    ],
    ids=["LeNet", "CNN", "ResNet18-40", "ResNet18-5"],
)
def test_counts_and_shapes(
    model: nn.Module, shape: tuple[int, ...], outputs: tuple[int, int], parameters: int, encoder: int
) -> None:
    assert count(model) == parameters
    shared = sum(p.numel() for name, p in model.named_parameters() if name.startswith("encoder."))
    assert shared == encoder
    assert model.shared == ("encoder",)
    assert list(model.buffers()) == []
    with torch.no_grad():
        results = model(torch.zeros(2, *shape))
    assert [tuple(result.shape) for result in results] == [(2, outputs[1])] * outputs[0]
    pickle.dumps(model)


def test_layout_of_images_changes_nothing() -> None:
    with seeded(torch.device("cpu"), 0):
        model = ResNet18(2, 2).eval()
        images = torch.randn(2, 3, 32, 32)
    expected = model(images)[0]
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    result = model(images.contiguous(memory_format=torch.channels_last))[0]
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_decoders_do_not_touch_each_other() -> None:
    model = LeNet(dropout=0.0)
    first, _ = model(torch.randn(4, 1, 28, 28))
    grads = torch.autograd.grad(first.sum(), list(model.parameters()), allow_unused=True)
    used = {name for (name, _), grad in zip(model.named_parameters(), grads, strict=True) if grad is not None}
    assert not any(name.startswith("decoders.1.") for name in used)
    assert any(name.startswith("decoders.0.") for name in used)


def test_dropout_only_in_training() -> None:
    model, images = LeNet(), torch.randn(4, 1, 28, 28)
    assert not torch.equal(model(images)[0], model(images)[0])
    model.eval()
    assert torch.equal(model(images)[0], model(images)[0])


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN")  # type: ignore[no-untyped-call]
@pytest.mark.parametrize(("network", "shape"), [(LeNet, (1, 28, 28)), (CNN, (3, 32, 32))], ids=["LeNet", "CNN"])
def test_the_blocked_layout_is_used_and_changes_nothing(network: type[SharedEncoder], shape: tuple[int, ...]) -> None:
    with seeded(torch.device("cpu"), 0):
        model, images = network().double().eval(), torch.randn(8, *shape, dtype=torch.float64)
    exact = outputs_and_gradients(model, images)  # float64 has no such layout
    layouts = []
    next(model.encoder.children()).register_forward_hook(lambda _, inputs, output: layouts.append(output.layout))
    blocked = outputs_and_gradients(model.float(), images.float().contiguous(memory_format=torch.channels_last))
    assert layouts == [torch.zeros(1).to_mkldnn().layout]
    for found, expected in zip(blocked, exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def outputs_and_gradients(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    outputs = model(images)
    gradients = torch.autograd.grad(sum(o.square().sum() for o in outputs), list(model.parameters()))
    return [*(o.detach() for o in outputs), *gradients]


def test_nan_in_images_or_weights_is_not_lost() -> None:
    model, images = LeNet(), torch.randn(4, 1, 28, 28)
    with torch.no_grad():
        assert all(output.isnan().all() for output in model.eval()(torch.full_like(images, torch.nan)))
    images[0] = torch.nan
    assert outputs_and_gradients(model, images)[2].isnan().any()  # of the first convolution's weights


def test_training_works_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert all(result.isfinite().all() for result in outputs_and_gradients(LeNet(), torch.randn(4, 1, 28, 28)))
