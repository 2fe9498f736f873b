"""torchjd's rules by name and settings: `FedCMOO(weights=CAGrad())`, or `--weights cagrad`.

Each docstring is a short summary; see torchjd's documentation for formulas and references.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from fedcmoo.optional import MissingExtraError, pip_line
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.torchjd import EXTRA, aggregation, apply


@dataclass(frozen=True)
class NamedRule(ABC):
    """A rule of torchjd, given by its settings (see torchjd's documentation); `normalize` is as in `TorchJD`."""

    normalize: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        try:
            self.make(M=2)  # so that a missing package and wrong settings are found at once
        except MissingExtraError:
            raise
        except ImportError as error:  # torchjd is installed, but not the solver that this rule needs
            raise MissingExtraError(f"{error}. Or: {pip_line(EXTRA)}") from error

    @abstractmethod
    def make(self, M: int) -> Any:
        """torchjd's object for M objectives."""

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        return apply(self.make(len(w)), w, G, memory, self.normalize)


@dataclass(frozen=True)
class FrankWolfeMGDA(NamedRule):
    """MGDA with Frank-Wolfe steps; `MinNorm` solves the same problem exactly."""

    epsilon: float = 0.001
    max_iters: int = 100

    def make(self, M: int) -> Any:
        return aggregation().MGDAWeighting(self.epsilon, self.max_iters)


@dataclass(frozen=True)
class CAGrad(NamedRule):
    """The direction near the mean gradient (within c times its length) that improves the worst objective most."""

    c: float = 0.5

    def make(self, M: int) -> Any:
        return aggregation().CAGradWeighting(self.c)


@dataclass(frozen=True)
class NashMTL(NamedRule):
    """The Nash bargaining solution, G w = 1/w."""

    max_norm: float = 1.0
    optim_niter: int = 20

    def make(self, M: int) -> Any:
        return aggregation().NashMTL(M, max_norm=self.max_norm, optim_niter=self.optim_niter)


@dataclass(frozen=True)
class FairGrad(NamedRule):
    """α-fair progress of the objectives, G w = w^(-1/α); α = 1 is the Nash bargaining solution."""

    alpha: float = 1.0

    def make(self, M: int) -> Any:
        return aggregation().FairGradWeighting(self.alpha)


@dataclass(frozen=True)
class IMTLG(NamedRule):
    """Equal projections of the direction on all unit gradients; weights may be negative."""

    def make(self, M: int) -> Any:
        return aggregation().IMTLGWeighting()


@dataclass(frozen=True)
class AlignedMTL(NamedRule):
    """The gradients' principal components, all made equally long."""

    scale_mode: Literal["min", "median", "rmse"] = "min"

    def make(self, M: int) -> Any:
        return aggregation().AlignedMTLWeighting(scale_mode=self.scale_mode)


@dataclass(frozen=True)
class PCGrad(NamedRule):
    """The sum of the gradients after removing each one's conflicts with the others, in random order."""

    def make(self, M: int) -> Any:
        return aggregation().PCGradWeighting()


@dataclass(frozen=True)
class GradVac(NamedRule):
    """Like PCGrad, but each pair is brought to its usual similarity, a running mean over rounds."""

    beta: float = 0.5

    def make(self, M: int) -> Any:
        return aggregation().GradVacWeighting(self.beta)


@dataclass(frozen=True)
class PCD(NamedRule):
    """The first objective's gradient, provided that the others keep a share tau of their own progress."""

    tau: float = 0.02
    beta: float = 0.999

    def make(self, M: int) -> Any:
        return aggregation().PCDWeighting(self.tau, self.beta)


@dataclass(frozen=True)
class Krum(NamedRule):
    """The objective (or objectives) whose gradient is nearest to the others'; needs three objectives or more."""

    n_byzantine: int = 0
    n_selected: int = 1

    def make(self, M: int) -> Any:
        return aggregation().KrumWeighting(self.n_byzantine, self.n_selected)


@dataclass(frozen=True)
class MoDo(NamedRule):
    """One projected-gradient step a round towards the min-norm weights, remembered from round to round.

    Its theory requires G from two independent samples, such as the two client sets of ApproxGramJacobian-T.
    """

    gamma: float = 0.1
    rho: float = 0.1

    def make(self, M: int) -> Any:
        return aggregation().MoDoWeighting(self.gamma, self.rho)


@dataclass(frozen=True)
class SDMGrad(NamedRule):
    """Like MoDo, with momentum steps, and regularized towards the mean gradient."""

    lr: float = 10.0
    momentum: float = 0.5
    n_iter: int = 20

    def make(self, M: int) -> Any:
        return aggregation().SDMGradWeighting(lr=self.lr, momentum=self.momentum, n_iter=self.n_iter)


@dataclass(frozen=True)
class Random(NamedRule):
    """Random positive weights in every round, independent of G."""

    def make(self, M: int) -> Any:
        return aggregation().RandomWeighting()


@dataclass(frozen=True)
class Mean(NamedRule):
    """Equal weights, independent of G."""

    def make(self, M: int) -> Any:
        return aggregation().MeanWeighting()


TORCHJD: dict[str, type[NamedRule]] = {
    "mgda": FrankWolfeMGDA,
    "cagrad": CAGrad,
    "nash-mtl": NashMTL,
    "fairgrad": FairGrad,
    "imtl-g": IMTLG,
    "aligned-mtl": AlignedMTL,
    "pcgrad": PCGrad,
    "gradvac": GradVac,
    "pcd": PCD,
    "krum": Krum,
    "modo": MoDo,
    "sdmgrad": SDMGrad,
    "random": Random,
    "mean": Mean,
}
"""torchjd's rules by name. They can be listed without torchjd; making one needs it."""
