"""The LeNet-like network of MultiMNIST, MNIST+FMNIST and the two-digit problem."""

from typing import ClassVar

from torch import Tensor, nn


class LeNet(nn.Module):
    """A small convolutional encoder for 28x28 grey images, and a two-layer decoder per objective.

    With two objectives of ten classes it has 34,635 parameters, 28,515 of them in the encoder.

    Args:
        objectives: the number of objectives M.
        classes: the number of classes of each objective.
        dropout: probability of dropping a unit, after the encoder's and each decoder's hidden layer.

    Input [B, 1, 28, 28]; output M tensors of logits [B, classes].

    >>> sum(p.numel() for p in LeNet().parameters())
    34635
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, objectives: int = 2, classes: int = 10, dropout: float = 0.5) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
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
            nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Dropout(dropout), nn.Linear(50, classes))
            for _ in range(objectives)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(images)
        return tuple(decoder(features) for decoder in self.decoders)
