"""Images stored in memory as bytes and normalised to floats batch by batch."""

from collections.abc import Sequence

import torch
from torch import Tensor


class ImageData:
    """N images with M targets each, as `Data`.

    A batch is ((image / 255 - mean) / std, targets), computed as image * scale + shift.

    Args:
        images: uint8, [N, C, H, W].
        targets: M tensors of first dimension N, one per objective.
        mean: the mean of each channel (C numbers), for images in [0, 1].
        std: the standard deviation of each channel, positive.

    >>> data = ImageData(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), (torch.tensor([7]),), mean=[0.5], std=[0.5])
    >>> inputs, (digit,) = data.batch(torch.tensor([0]))
    >>> inputs.tolist(), digit.tolist()
    ([[[[-1.0, 1.0]]]], [7])
    """

    def __init__(self, images: Tensor, targets: Sequence[Tensor], mean: Sequence[float], std: Sequence[float]) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"images must be uint8 of shape [N, C, H, W], but got {images.dtype} of shape {tuple(images.shape)}"
            )
        channels = images.shape[1]
        if len(mean) != channels or len(std) != channels:
            raise ValueError(
                f"mean and std need one number per channel ({channels}), but got {len(mean)} and {len(std)}"
            )
        if min(std) <= 0:
            raise ValueError(f"std must be positive, but got {list(std)}")
        for target in targets:
            if len(target) != len(images):
                raise ValueError(f"every target must have {len(images)} entries, but one has {len(target)}")
        self.images = images
        self.targets = tuple(targets)
        deviation = torch.tensor(std, dtype=torch.float32).reshape(1, channels, 1, 1)
        self.scale = 1 / (255 * deviation)
        self.shift = -torch.tensor(mean, dtype=torch.float32).reshape(1, channels, 1, 1) / deviation

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs = self.images.index_select(0, index).float().mul_(self.scale).add_(self.shift)
        return inputs, tuple(target.index_select(0, index) for target in self.targets)
