"""The paper's networks for images."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

GROUPS = 2
"""Of ResNet-18's group normalisation, which keeps no batch statistics: those of skewed clients would differ."""


class SharedEncoder(nn.Module):
    """An encoder that all objectives share, and a decoder for each: maps a batch to a tuple of M outputs."""

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    encoder: nn.Module
    decoders: nn.ModuleList

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(inputs)
        return tuple(decoder(features) for decoder in self.decoders)


class ConvolutionalEncoder(nn.Sequential):
    """Convolutions, max-poolings and ReLUs, a `Flatten`, and linear layers.

    In training on a CPU, the layers before the `Flatten` keep their activations in oneDNN's blocked layout, which is
    faster than channels-last. Outputs and gradients differ only by rounding, except that NaN may become a number in a
    max-pooling or ReLU; gradients are still NaN. The blocked layout has no second derivatives.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs.to_mkldnn() if _can_use_blocked_layout(inputs) else inputs
        for layer in self:
            x = layer(x.to_dense() if isinstance(layer, nn.Flatten) else x)
        return x


def _can_use_blocked_layout(inputs: Tensor) -> bool:
    """Whether this is a training step that oneDNN can compute in its blocked layout. Evaluations do not use it, since
    they must detect NaN in their outputs."""
    on_cpu = inputs.device.type == "cpu" and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    plain = inputs.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return torch.is_grad_enabled() and bool(on_cpu) and plain


class LeNet(SharedEncoder):
    """The LeNet-like network: a small encoder for 28x28 grey images, and a decoder for each of two objectives.

    It has 34,635 parameters, 28,515 of them in the encoder. Input [B, 1, 28, 28]; output two tensors of logits [B, 10].

    Args:
        dropout: probability of dropping a unit, after the encoder's and each decoder's hidden layer.

    >>> sum(p.numel() for p in LeNet().parameters())
    34635
    """

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.encoder = ConvolutionalEncoder(
            nn.Conv2d(1, 10, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 15, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(15 * 6 * 6, 50),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Dropout(dropout), nn.Linear(50, 10)) for _ in range(2)
        )


class CNN(SharedEncoder):
    """The network of CIFAR10+MNIST: two convolutions and two linear layers, and a decoder for each of two objectives.

    It has 1,726,508 parameters, 1,685,888 of them in the encoder. There is no activation between a decoder's layers, as
    in the authors' runs. Input [B, 3, 32, 32]; output two tensors of logits [B, 10].
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = ConvolutionalEncoder(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 384),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(384, 192),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.decoders = nn.ModuleList(nn.Sequential(nn.Linear(192, 100), nn.Linear(100, 10)) for _ in range(2))


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels: int, new_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, new_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, new_channels)
        self.conv2 = nn.Conv2d(new_channels, new_channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, new_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != new_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, new_channels, 1, stride=stride, bias=False), nn.GroupNorm(GROUPS, new_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(SharedEncoder):
    """ResNet-18 for CelebA: 32x32 colour images (3x3 stem, no pooling after it), and a linear decoder per objective.

    The last pooling has a 3x3 window on a 4x4 map, so it covers only the map's top left part, as in the authors' runs.
    The encoder has 11,168,832 parameters; with 40 decoders 512 -> 2 there are 11,209,872, with five decoders
    512 -> 8 there are 11,189,352.

    Args:
        objectives: the number of objectives M.
        outputs: the size of each objective's output.

    Input [B, 3, 32, 32]; output M tensors of logits [B, outputs].
    """

    def __init__(self, objectives: int = 40, outputs: int = 2) -> None:
        super().__init__()
        stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        blocks = [
            block
            for channels, new_channels, stride in stages
            for block in (Block(channels, new_channels, stride), Block(new_channels, new_channels, 1))
        ]
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, 64),
            nn.ReLU(),
            *blocks,
            nn.AvgPool2d(3),
            nn.Flatten(),
        )
        self.decoders = nn.ModuleList(nn.Linear(512, outputs) for _ in range(objectives))
