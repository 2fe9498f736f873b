"""Rules of the torchjd package (extra `torchjd`): all those that need only a Gram matrix.

They are given as torchjd's objects, or by name and settings; see torchjd's documentation for formulas and references:

    FedCMOO(weights=torchjd.aggregation.UPGradWeighting())
    FedCMOO(weights=CAGrad(c=0.4))      # --weights cagrad

References:
    Quinton and Rey. Jacobian Descent for Multi-Objective Optimization. 2024.
"""

import copy
import warnings
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedcmoo.optional import MissingExtraError, pip_line, require
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights.gramian import positive_part, root

EXTRA = "torchjd"
MEMORY = "weights."
"""The prefix of the names of a rule's state in the server's memory."""


def aggregation() -> Any:
    """The package torchjd.aggregation, or an error with the pip command that installs it."""
    return require("torchjd.aggregation", EXTRA)


@dataclass(frozen=True, eq=False)
class TorchJD:
    """Adapter that turns a torchjd object into a rule: a Gramian weighting, an aggregator that has one, or NashMTL.

    Negative eigenvalues of G (noise of a compressed estimate) count as zero. If G is zero or a rule gives no usable
    weights (all zero, as CAGrad does at a stationary point, or not finite), the previous weights stay.

    The state of an object (GradVac, PCD, CR-MOGM) is kept in the server's memory, so that runs are resumed exactly and
    two runs can use the same object. NashMTL's state, a starting point for its solver, is reset in every round.

    Args:
        rule: the object; it is never changed.
        normalize: divide the weights by the sum of their absolute values. Many rules' weights do not sum to one
            (PCGrad's sum to M or more), which would scale the clients' learning rate; with normalization, a rule
            determines only the direction, and learning rates mean the same for every rule. False keeps the weights.
    """

    rule: nn.Module
    normalize: bool = True

    def __post_init__(self) -> None:
        refuse_what_needs_more(self.rule)

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        agg = aggregation()
        rule = copy.deepcopy(self.rule)
        G = positive_part(G)
        if not G.any():  # nothing to weigh, and some rules divide by a length
            return w
        if isinstance(rule, agg.NashMTL):  # it needs a Jacobian: any with this Gramian will do
            rule, stat = rule.weighting, torch.from_numpy(root(G))
        else:
            preference = getattr(rule, "pref_vector", None)  # torchjd requires the same dtype for both
            dtype = torch.float64 if preference is None else preference.dtype
            rule, stat = getattr(rule, "gramian_weighting", rule), torch.from_numpy(G).to(dtype)
        known = {name.removeprefix(MEMORY): value for name, value in memory.items() if name.startswith(MEMORY)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of solvers meant for developers
            if known:
                rule(stat)  # creates the buffers that hold the state
                rule.load_state_dict(known, strict=False)
            new: Vector = rule(stat).numpy().astype(np.float64)
        for name, value in rule.named_buffers():
            memory[MEMORY + name] = value.clone()
        total = np.abs(new).sum()
        if not 0 < total < np.inf:
            return w
        return new / total if self.normalize else new


def refuse_what_needs_more(rule: nn.Module) -> None:
    """Raise unless the object's weights depend only on a Gramian."""
    agg = aggregation()
    if isinstance(rule, (agg.GramianWeightedAggregator, agg.NashMTL)):
        return
    if not isinstance(rule, agg.Weighting) or isinstance(rule, agg.ExcessMTLWeighting):
        raise TypeError(
            "weights must be a rule that a Gram matrix is enough for, such as torchjd's UPGradWeighting(), "
            f"but {type(rule).__name__} needs the whole Jacobian"
        )


@dataclass(frozen=True)
class NamedRule:
    """A rule of torchjd, given by its settings (see torchjd's documentation); `normalize` is as in `TorchJD`.

    The rule NAME, with its settings as arguments, is torchjd's class NAMEWeighting.
    """

    normalize: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        try:
            self.make(M=2)  # so that a missing package and wrong settings are found at once
        except MissingExtraError:
            raise
        except ImportError as error:  # torchjd is installed, but not the solver that this rule needs
            raise MissingExtraError(f"{error}. Or: {pip_line(EXTRA)}") from error

    def make(self, M: int) -> Any:
        """torchjd's object for M objectives."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "normalize"}
        return getattr(aggregation(), f"{type(self).__name__}Weighting")(**settings)

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        return TorchJD(self.make(len(w)), self.normalize).remember(w, G, memory)


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


@dataclass(frozen=True)
class IMTLG(NamedRule):
    """Equal projections of the direction on all unit gradients; weights may be negative."""


@dataclass(frozen=True)
class AlignedMTL(NamedRule):
    """The gradients' principal components, all made equally long."""

    scale_mode: Literal["min", "median", "rmse"] = "min"


@dataclass(frozen=True)
class PCGrad(NamedRule):
    """The sum of the gradients after removing each one's conflicts with the others, in random order."""


@dataclass(frozen=True)
class GradVac(NamedRule):
    """Like PCGrad, but each pair is brought to its usual similarity, a running mean over rounds."""

    beta: float = 0.5


@dataclass(frozen=True)
class PCD(NamedRule):
    """The first objective's gradient, provided that the others keep a share tau of their own progress."""

    tau: float = 0.02
    beta: float = 0.999


@dataclass(frozen=True)
class Krum(NamedRule):
    """The objective (or objectives) whose gradient is nearest to the others'; needs three objectives or more."""

    n_byzantine: int = 0
    n_selected: int = 1


@dataclass(frozen=True)
class MoDo(NamedRule):
    """One projected-gradient step a round towards the min-norm weights, remembered from round to round.

    Its theory requires G from two independent samples, such as the two client sets of ApproxGramJacobian-T.
    """

    gamma: float = 0.1
    rho: float = 0.1


@dataclass(frozen=True)
class SDMGrad(NamedRule):
    """Like MoDo, with momentum steps, and regularized towards the mean gradient."""

    lr: float = 10.0
    momentum: float = 0.5
    n_iter: int = 20


@dataclass(frozen=True)
class Random(NamedRule):
    """Random positive weights in every round, independent of G."""


@dataclass(frozen=True)
class Mean(NamedRule):
    """Equal weights, independent of G."""


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
