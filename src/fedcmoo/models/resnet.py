"""ResNet-18 with group normalisation: the network of CelebA and CelebA-5.

Group normalisation keeps no batch statistics, which would differ between clients with skewed data.
"""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

GROUPS = 2


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


class ResNet18(nn.Module):
    """ResNet-18 for 32x32 colour images (3x3 stem, no pooling after it), and a linear decoder per objective.

    The last pooling has a 3x3 window on a 4x4 map, so it covers only the map's top left part, as in the authors' runs.
    The encoder has 11,168,832 parameters; with 40 decoders 512 -> 2 there are 11,209,872, with five decoders
    512 -> 8 there are 11,189,352.

    Args:
        objectives: the number of objectives M.
        outputs: the size of each objective's output.

    Input [B, 3, 32, 32]; output M tensors of logits [B, outputs].
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

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

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(images)
        return tuple(decoder(features) for decoder in self.decoders)
