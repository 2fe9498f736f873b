"""Bounds on the contribution of one client: clipping to an L2 norm that is fixed or follows a quantile of the norms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution, Stage
from fedcmoo.messages import BadMessageError, Field, Message, check
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.validation import positive

VOTES = "within"
"""The array with the clients' votes on whether their norms are within the bound."""


def l2_norm(arrays: Iterable[Tensor]) -> float:
    """The norm of all entries of all arrays, in float64."""
    return math.hypot(*(torch.linalg.vector_norm(array, dtype=torch.float64).item() for array in arrays))


def clip(
    arrays: Mapping[str, Tensor], bound: float, degrees: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Tensor]:
    """Scale the arrays down together if their joint norm exceeds `bound`: min(1, C / ||v||) v.

    The norm of the result never exceeds the bound, rounding included. An array of degree k is scaled by the k-th power
    of the factor, and all arrays of degree k together get a norm of at most C^k; those of degree 0 are unchanged.

    Args:
        arrays: by name.
        bound: C.
        degrees: the degrees of the arrays, by name; 1 by default.

    >>> clip({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, bound=10.0)
    {'a': tensor([3.]), 'b': tensor([4.])}
    >>> l2_norm(clip({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, bound=1.0).values()) <= 1
    True
    """
    degree = {name: degrees.get(name, 1) for name in arrays}
    factor = 1.0
    for k in set(degree.values()) - {0}:
        norm = l2_norm(array for name, array in arrays.items() if degree[name] == k)
        if not math.isfinite(norm):
            raise ValueError("an array to be clipped must be finite, but has NaN or infinite entries")
        if norm > bound**k:
            factor = min(factor, bound / norm ** (1 / k))
    if factor == 1:
        return dict(arrays)
    return {name: _scaled(array, factor ** degree[name]) if degree[name] else array for name, array in arrays.items()}


def _scaled(array: Tensor, factor: float) -> Tensor:
    """The array times a factor that may be too small for float32, reduced by twice the largest rounding error."""
    margin = max(torch.finfo(array.dtype).eps, 1e-12)  # the norm of float64 arrays is also rounded
    return (array.double() * (factor * (1 - margin))).to(array.dtype)


@dataclass(frozen=True)
class Clip(Stage):
    """A bound on the L2 norm of a client's contribution, so that no client can change the sum by more.

    Clients clip before they encode. The server clips the decoded contributions again, since decoding may increase a
    norm, and hostile clients may not clip.

    Args:
        bound: C, the bound for updates.
        gradient_bound: the bound for gradients and their sketches, in Frobenius norm; None for the same.
    """

    bound: float
    gradient_bound: float | None = None

    def __post_init__(self) -> None:
        positive(bound=self.bound)
        if self.gradient_bound is not None:
            positive(gradient_bound=self.gradient_bound)

    def of(self, contribution: Contribution) -> Clip:
        return Clip(self.gradient_bound) if contribution.gradients and self.gradient_bound is not None else self

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        if not contribution.homogeneous:
            raise ValueError(
                f"what a client sends must change with its own gradients alone to be clipped, but "
                f"{type(contribution).__name__} does not; take another estimator of G, such as Sketch()"
            )
        if sizes.buffers or sizes.counters:
            raise ValueError(
                f"clipping bounds gradients and updates but no buffers, and the model has {sizes.buffers} entries of "
                "buffers; take one without, such as GroupNorm in place of BatchNorm"
            )

    @property
    def exact(self) -> bool:
        return False

    def bound_at(self, server: Server) -> float:
        """C in the server's current round."""
        return self.bound

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        return self.on_reply(arrays, fields, client.told)

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        degrees = {name: field.degree if field.clippable else 0 for name, field in fields.items()}
        return clip(arrays, self.bound, degrees)


@dataclass(frozen=True)
class QuantileClip(Clip):
    """A clipping bound that follows a quantile of the clients' norms.

    Each client adds b_i = 1/2 if its norm is within the bound C, and -1/2 if not. From the noised sum over the cohort
    the server estimates the share s of norms within the bound, and sets C <- C exp(-η (s - γ)). The sum of the b_i is a
    separate release, with `sensitivity` 1/2. The server does not clip decoded contributions, so codes must be exact.

    Args:
        bound: C of updates in the first round.
        gradient_bound: C of gradients and their sketches in the first round.
        quantile: γ, the share of clients that are not clipped.
        lr: η.
        memory: the name of the bound in the server's memory.

    References:
        Andrew, Thakkar, McMahan and Ramaswamy. Differentially private learning with adaptive clipping. NeurIPS 2021.
    """

    quantile: float = 0.5
    lr: float = 0.2
    memory: str = "clip/update"

    sensitivity: ClassVar[float] = 0.5
    tells: ClassVar[Sequence[str]] = ("bound",)
    own_fields: ClassVar[Mapping[str, Field]] = {VOTES: Field((1,), torch.float64)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, but got {self.quantile}")
        positive(lr=self.lr)

    def of(self, contribution: Contribution) -> QuantileClip:
        if not contribution.gradients:
            return self
        return replace(self, bound=self.gradient_bound or self.bound, memory="clip/gradients")

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        super().check(contribution, sizes)
        if not contribution.summable:
            raise ValueError(
                "a bound that follows a quantile needs exact codes, but those of "
                f"{type(contribution).__name__} are not; take gram=Sketch(bits=32, correction=False) and update=None"
            )

    def bound_at(self, server: Server) -> float:
        return float(server.memory[self.memory]) if self.memory in server.memory else self.bound

    def message(self, server: Server) -> Arrays:
        return {"bound": torch.tensor([self.bound_at(server)], dtype=torch.float64)}

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        check(Message(**client.told), {"bound": Field((1,), torch.float64)}, "the server")
        bound = float(client.told["bound"])
        if not bound > 0:
            raise BadMessageError(f"the server must send a positive bound, but sent {bound}")
        vote = self.vote(l2_norm(arrays.values()), bound)
        return {**Clip(bound).on_reply(arrays, fields, client.told), VOTES: torch.tensor([vote], dtype=torch.float64)}

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        return arrays

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        bound = self.next_bound(self.bound_at(server), float(sums[VOTES]), sums.count)
        server.memory[self.memory] = torch.tensor([bound], dtype=torch.float64)
        server.notes[self.memory] = bound

    def vote(self, norm: float, bound: float) -> float:
        """The vote b_i of a client whose unclipped contribution has this norm."""
        return self.sensitivity if norm <= bound else -self.sensitivity

    def next_bound(self, bound: float, votes: float, n: int) -> float:
        """The bound of the next round, from the noised sum of the votes of a cohort of n."""
        within = votes / n + 0.5
        return bound * math.exp(-self.lr * (within - self.quantile))
