"""Objects of the torchjd package (extra `torchjd`) as weighting rules: all those that need only a Gram matrix.

    FedCMOO(weights=torchjd.aggregation.UPGradWeighting())

References:
    Quinton and Rey. Jacobian Descent for Multi-Objective Optimization. 2024.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedcmoo.optional import require
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
        return apply(self.rule, w, G, memory, self.normalize)


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


def apply(rule: nn.Module, w: Vector, G: Matrix, memory: dict[str, Tensor], normalize: bool) -> Vector:
    """The weights [M] of a torchjd object for G [M, M]; its state is read from `memory` and stored there again."""
    agg = aggregation()
    rule = copy.deepcopy(rule)
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
    return new / total if normalize else new
