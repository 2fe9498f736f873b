"""Means that a few faulty or hostile clients cannot move far. They need single replies, so they exclude secure sums."""

from __future__ import annotations

import math

import torch
from torch import Tensor

COLUMNS = 2**16
"""Columns that are sorted at a time."""


def trimmed_mean(replies: Tensor, trim: float) -> Tensor:
    """The mean of each coordinate without its largest and smallest entries: [n, d] -> [d].

    Args:
        replies: one client's array a row.
        trim: the share of entries, below 1/2, to leave out at each end. It holds against as many hostile clients.

    References:
        Yin, Chen, Ramchandran and Bartlett. Byzantine-robust distributed learning: towards optimal statistical rates.
        ICML 2018.

    >>> trimmed_mean(torch.tensor([[1.0], [2.0], [3.0], [1e9]]), trim=0.25)
    tensor([2.5000])
    """
    if not 0 <= trim < 0.5:
        raise ValueError(f"trim must be from 0 to below 1/2, but got {trim}")
    n = len(replies)
    left_out = math.ceil(trim * n - 1e-9)
    if 2 * left_out >= n:
        raise ValueError(f"trim must leave an entry of each coordinate, but {trim} leaves none of {n}")
    blocks = (
        block.sort(dim=0).values[left_out : n - left_out].mean(dim=0) for block in torch.split(replies, COLUMNS, dim=1)
    )
    return torch.cat(list(blocks))


def geometric_median(points: Tensor, tolerance: float = 1e-6, steps: int = 100) -> Tensor:
    """The point with the least sum of distances to all points, by Weiszfeld's algorithm: [n, d] -> [d].

    A minority of the points, however far away, moves it by a bounded distance. The points may be single replies or the
    means of blocks of clients; with blocks, it holds as long as most of them have no hostile client.

    Args:
        points: one a row.
        tolerance: stop when a step is shorter than this share of the median distance.
        steps: at most so many.

    References:
        Chen, Su and Xu. Distributed statistical machine learning in adversarial settings: Byzantine gradient descent.
        POMACS 2017.
        Vardi and Zhang. The multivariate L1-median and associated data depth. PNAS 2000.

    >>> geometric_median(torch.tensor([[0.0], [1.0], [1e9]]))
    tensor([1.])
    """
    points64 = points.double()
    median = points64.median(dim=0).values
    for _ in range(steps):
        distances = torch.linalg.vector_norm(points64 - median, dim=1)
        apart = distances > 0
        if not apart.any():
            break
        pulls = torch.where(apart, 1 / distances, 0)
        target = (pulls @ points64) / pulls.sum()
        # Where the median lies on a point, that point holds it back with weight 1 (Vardi and Zhang).
        force = torch.linalg.vector_norm(pulls @ (points64 - median)).item()
        held = int((~apart).sum())
        step = max(0.0, 1 - held / force if force > 0 else 0.0) * (target - median)
        median = median + step
        if torch.linalg.vector_norm(step) <= tolerance * distances.median():
            break
    return median.to(points)
