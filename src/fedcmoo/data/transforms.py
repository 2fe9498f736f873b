"""Augmentations of whole training batches; all their randomness comes from the generator they are given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class RandomRotation:
    """Rotate each image about its centre by an angle uniform in [-degrees, degrees], to the nearest pixel.

    Args:
        degrees: the largest angle.
        fill: what comes in from outside the image: one number, or one per channel.

    Calling it: images [B, C, H, W] and a generator -> images [B, C, H, W].

    >>> images = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> RandomRotation(0)(images, torch.Generator()).equal(images)
    True
    """

    def __init__(self, degrees: float, fill: float | Sequence[float] = 0.0) -> None:
        if not 0 <= degrees <= 180:
            raise ValueError(f"degrees must be in [0, 180], but got {degrees}")
        self.degrees = float(degrees)
        self.fill = tuple(fill) if isinstance(fill, Sequence) else (float(fill),)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(images), generator=generator, device=generator.device).to(images.device)
        return rotate(images, (2 * draws - 1) * math.radians(self.degrees), self.fill)


def rotate(images: Tensor, angles: Tensor, fill: Sequence[float]) -> Tensor:
    """Rotate images [B, C, H, W] counterclockwise by angles [B] (radians), to the nearest pixel.

    Each pixel of the result takes the value that lies at its place turned back by the angle. The images get a
    margin of one pixel of `fill`, where all places outside the image are moved to.

    Args:
        images: [B, C, H, W].
        angles: [B], radians.
        fill: the margin's value, one number or one per channel.
    """
    count, channels, height, width = images.shape
    y = torch.arange(height, device=images.device) - (height - 1) / 2
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    # Sums of a term per row and a term per column: only these have the size of the images.
    row = (cos * y + (height + 1) / 2)[:, :, None] + (sin * x)[:, None, :]  # [B, H, W]
    column = (cos * x + (width + 1) / 2)[:, None, :] - (sin * y)[:, :, None]
    row.round_().clamp_(0, height + 1)
    column.round_().clamp_(0, width + 1)
    source = column.add_(row, alpha=width + 2).long().view(count, 1, -1).expand(-1, channels, -1)
    padded = images.new_empty(count, channels, height + 2, width + 2)
    padded[:] = images.new_tensor(fill).view(1, -1, 1, 1)
    padded[:, :, 1:-1, 1:-1] = images
    return padded.view(count, channels, -1).gather(2, source).view(images.shape)
