"""Robust means, which a few faulty or hostile clients cannot change much. They need single replies, so they exclude
secure sums.

The server keeps the replies of a cohort until all have arrived, so memory grows with the cohort.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.contributions import Contribution, Stage
from fedcmoo.failures import TooFewRepliesError
from fedcmoo.messages import Field
from fedcmoo.privacy.differential import Noise
from fedcmoo.privacy.secure import Secure
from fedcmoo.problem import Problem
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums

COLUMNS = 2**16
"""The number of columns sorted at a time."""

STEPS, TOLERANCE = 100, 1e-6
"""The geometric median: the maximum number of steps, and the last one's length, as a share of the median distance."""

EQUAL = "a robust mean needs clients that own all objectives and have equal weights, but some do not"


@dataclass(frozen=True)
class RobustMean(Stage):
    """Base class of stages that replace the sum of the clients' arrays by a robust mean, separately for each array."""

    single_replies: ClassVar[bool] = True

    @property
    def exact(self) -> bool:
        return False

    @abstractmethod
    def mean(self, rows: Tensor) -> Tensor:
        """The mean of the clients' arrays, [n, d] -> [d]."""

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        if not contribution.homogeneous:
            raise ValueError(
                f"a robust mean needs replies that depend on their own clients alone, but those of "
                f"{type(contribution).__name__} do not; take another estimator of G, such as Sketch()"
            )

    def check_run(self, problem: Problem, n: int, stages: Sequence[Stage]) -> None:
        if sum(stage.single_replies for stage in stages) > 1:
            raise ValueError("there can be one robust mean, but the stages have more; take one of them")
        for stage in stages:
            if isinstance(stage, Secure):
                raise ValueError(
                    "a robust mean needs single replies, but secure sums hide them; use only one of the two"
                )
            if isinstance(stage, Noise):
                raise ValueError("the noise of privacy is for sums, not for a robust mean; use only one of the two")
        if problem.weights != "equal" or problem.shares_here():
            raise ValueError(EQUAL)
        self.mean(torch.zeros(n, 1))

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        if sums.P_k is not None:
            raise ValueError(EQUAL)
        try:
            self.mean(torch.zeros(sums.count, 1))
        except ValueError as error:
            raise TooFewRepliesError(f"{error}; {len(sums.failures)} clients did not reply") from None
        for name, rows in sums.totals.items():
            if fields[name].add == "sum":
                sums.totals[name] = self.mean(rows.flatten(1)).view(rows.shape[1:]) * sums.P


@dataclass(frozen=True)
class TrimmedMean(RobustMean):
    """The mean of each coordinate without its largest and smallest entries.

    Args:
        trim: the share of clients, below 1/2, to leave out at each end, and of hostile clients that is tolerated.

    References:
        Yin, Chen, Ramchandran and Bartlett. Byzantine-robust distributed learning: towards optimal statistical rates.
        ICML 2018.

    >>> TrimmedMean(trim=0.25).mean(torch.tensor([[1.0], [2.0], [3.0], [1e9]]))
    tensor([2.5000])
    """

    trim: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise ValueError(f"trim must be from 0 to below 1/2, but got {self.trim}")

    def mean(self, rows: Tensor) -> Tensor:
        n = len(rows)
        left_out = math.ceil(self.trim * n - 1e-9)
        if 2 * left_out >= n:
            raise ValueError(f"trim must leave an entry of each coordinate, but {self.trim} leaves none of {n}")
        blocks = (
            block.sort(dim=0).values[left_out : n - left_out].mean(dim=0) for block in torch.split(rows, COLUMNS, dim=1)
        )
        return torch.cat(list(blocks))


@dataclass(frozen=True)
class GeometricMedian(RobustMean):
    """The geometric median of the means of blocks of clients: the point with the least sum of distances to them.

    A minority of the points, however far away, moves it by a bounded distance.

    Args:
        blocks: the number of blocks; the mean is robust as long as most of them have no hostile client. None for one
            client per block.

    References:
        Chen, Su and Xu. Distributed statistical machine learning in adversarial settings: Byzantine gradient descent.
        POMACS 2017.
        Vardi and Zhang. The multivariate L1-median and associated data depth. PNAS 2000.

    >>> GeometricMedian().mean(torch.tensor([[0.0], [1.0], [1e9]]))
    tensor([1.])
    """

    blocks: int | None = None

    def __post_init__(self) -> None:
        if self.blocks is not None and self.blocks < 3:
            raise ValueError(f"blocks must be at least 3, for there to be a majority, but got {self.blocks}")

    def mean(self, rows: Tensor) -> Tensor:
        if self.blocks is not None and len(rows) > self.blocks:
            rows = torch.stack([block.mean(dim=0) for block in torch.tensor_split(rows, self.blocks)])
        points = rows.double()
        median = points.median(dim=0).values
        for _ in range(STEPS):  # of Weiszfeld's algorithm
            distances = torch.linalg.vector_norm(points - median, dim=1)
            apart = distances > 0
            if not apart.any():
                break
            pulls = torch.where(apart, 1 / distances, 0)
            target = (pulls @ points) / pulls.sum()
            # If the iterate is at a point, that point holds it back with weight 1 (Vardi and Zhang).
            force = torch.linalg.vector_norm(pulls @ (points - median)).item()
            held = int((~apart).sum())
            step = max(0.0, 1 - held / force if force > 0 else 0.0) * (target - median)
            median = median + step
            if torch.linalg.vector_norm(step) <= TOLERANCE * distances.median():
                break
        return median.to(rows)


ROBUST: dict[str, type[RobustMean]] = {"trimmed-mean": TrimmedMean, "geometric-median": GeometricMedian}
"""By name, for configurations."""
