"""Augmentations of whole training batches; all their randomness comes from the generator they are given."""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


class RandomRotation:
    """Rotate each image about its centre by a random angle in [-degrees, degrees], with bilinear interpolation.

    Pixels from outside the image are 0, which is the mean grey of normalised images.

    Args:
        degrees: the largest angle.
        whole: draw whole numbers of degrees only.

    Calling it: images [B, C, H, W] and a generator -> images [B, C, H, W].
    """

    def __init__(self, degrees: float, whole: bool = False) -> None:
        if not 0 <= degrees <= 180:
            raise ValueError(f"degrees must be in [0, 180], but got {degrees}")
        self.degrees, self.whole = float(degrees), whole

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(images), generator=generator, device=generator.device).to(images.device)
        if self.whole:
            angles = (draws * (2 * math.floor(self.degrees) + 1)).floor() - math.floor(self.degrees)
        else:
            angles = (2 * draws - 1) * self.degrees
        return rotate(images, angles * (math.pi / 180))


class RandomFlip:
    """Flip the whole batch left to right with a given probability.

    Args:
        probability: the probability of a flip.

    Calling it: images [B, C, H, W] and a generator -> images [B, C, H, W].
    """

    def __init__(self, probability: float) -> None:
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be in [0, 1], but got {probability}")
        self.probability = probability

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        draw = torch.rand((), generator=generator, device=generator.device)
        return images.flip(3) if draw < self.probability else images


class Chain:
    """Apply several augmentations in order."""

    def __init__(self, *transforms: Callable[[Tensor, torch.Generator], Tensor]) -> None:
        self.transforms = transforms

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        for transform in self.transforms:
            images = transform(images, generator)
        return images


def rotate(images: Tensor, angles: Tensor) -> Tensor:
    """Rotate images [B, C, H, W] counterclockwise by angles [B] (radians), bilinear, with zeros outside.

    Each pixel of the result takes the value at its position rotated back by the angle.
    """
    height, width = images.shape[2:]
    turns = torch.polar(torch.full_like(angles, 2 / width), angles)  # in the units of grid_sample, -1 to 1 over width
    source = torch.view_as_real(turns[:, None, None] * _places(height, width, images.device))
    if height != width:
        source[..., 1] *= width / height
    return grid_sample(images, source, mode="bilinear", padding_mode="zeros", align_corners=False)


@lru_cache(maxsize=8)
def _places(height: int, width: int, device: torch.device) -> Tensor:
    """The pixels' places as complex numbers x + iy [H, W], which a multiplication rotates: the fastest way to make the
    grid. They are kept, since making them takes as long as rotating them."""
    x, y = (torch.arange(size, device=device) - (size - 1) / 2 for size in (width, height))
    return x + 1j * y[:, None]
