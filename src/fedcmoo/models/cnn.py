"""The convolutional network of CIFAR10+MNIST."""

from typing import ClassVar

from torch import Tensor, nn


class CNN(nn.Module):
    """Two convolutions and two linear layers for 32x32 colour images, and a decoder of two linear layers per objective.

    With two objectives of ten classes it has 1,726,508 parameters, 1,685,888 of them in the encoder. There is no
    activation between a decoder's layers, as in the authors' runs.

    Args:
        objectives: the number of objectives M.
        classes: the number of classes of each objective.
        dropout: probability of dropping a unit, after each of the encoder's linear layers.

    Input [B, 3, 32, 32]; output M tensors of logits [B, classes].
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, objectives: int = 2, classes: int = 10, dropout: float = 0.5) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 384),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(384, 192),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Linear(192, 100), nn.Linear(100, classes)) for _ in range(objectives)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(images)
        return tuple(decoder(features) for decoder in self.decoders)
