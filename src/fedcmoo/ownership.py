"""Unequal clients: the objectives that a client owns, and its weight.

Client i has a weight p_i > 0 and owns the objectives O_i, those for which it has labels. With P = Σ p_i over a cohort
and P_k = Σ p_i over those of its clients that own objective k,

    F_k(x) = 1/P_k Σ_{i owns k} p_i f_{i,k}(x),        client i trains on Σ_{k in O_i} w_k (P / P_k) f_{i,k},

with the learning rate η_c / s_i, where s_i is the largest P / P_k of its objectives, and sends Δ_i = s_i (x - x_i). The
server takes x - η_s · 1/P Σ p_i Δ_i, which for one local step is the gradient step on Σ_k w_k F_k.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """A client's part in a federation: its weight p_i, and for each objective whether it owns it, [M].

    >>> Share(2.0, (True, False)).objectives
    [0]
    """

    weight: float
    owned: tuple[bool, ...]

    @property
    def objectives(self) -> list[int]:
        """O_i: the indices of the objectives that the client owns."""
        return [k for k, owns in enumerate(self.owned) if owns]

    @property
    def is_plain(self) -> bool:
        """Whether the client owns all objectives and has weight 1."""
        return self.weight == 1 and all(self.owned)

    @property
    def weights(self) -> Tensor:
        """p_i for objectives that the client owns, 0 for others: float64 [M]."""
        return self.weight * torch.tensor(self.owned, dtype=torch.float64)


def unequal(shares: Mapping[int, Share]) -> Mapping[int, Share]:
    """A cohort's shares, by client; none if all clients have weight 1 and own all objectives."""
    return {} if all(share.is_plain for share in shares.values()) else shares


def scales(shares: Mapping[int, Share]) -> list[float] | None:
    """P / P_k of a cohort for each objective, 0 for those that nobody owns: [M]. None if there are no shares.

    >>> scales({3: Share(1.0, (True, True, False)), 5: Share(3.0, (True, False, False))})
    [1.0, 4.0, 0.0]
    """
    if not shares:
        return None
    P = sum(share.weight for share in shares.values())
    P_k = torch.stack([share.weights for share in shares.values()]).sum(dim=0)
    return [P / p if p > 0 else 0.0 for p in P_k.tolist()]


def local_weights(
    w: Sequence[float], scales: Sequence[float] | None, owned: Iterable[int]
) -> tuple[list[float], float]:
    """The weights w_k P / P_k of a client's loss, and s_i, the largest P / P_k of the objectives it owns.

    No local step on an objective is longer than that of a client with all labels, since the learning rate is η_c / s_i.
    With one step of SGD, s_i has no effect.

    >>> local_weights([0.5, 0.5], scales=[1.0, 4.0], owned=[1])
    ([0.5, 2.0], 4.0)
    """
    if scales is None:
        return list(w), 1.0
    weights = [w_k * scale for w_k, scale in zip(w, scales, strict=True)]
    return weights, max((scales[k] for k in owned), default=1.0)


def is_labelled(target: Tensor) -> Tensor:
    """Which samples of a batch have a label: bool [B]. NaN marks a missing one in floats [B, ...], -1 in classes [B].

    >>> is_labelled(torch.tensor([0.5, torch.nan])).tolist(), is_labelled(torch.tensor([3, -1])).tolist()
    ([True, False], [True, False])
    """
    if target.is_floating_point():
        return ~target.isnan().reshape(len(target), -1).any(dim=1)
    return target != -1 if target.ndim == 1 else torch.ones(len(target), dtype=torch.bool, device=target.device)


def check_ownership(
    owns: Sequence[Iterable[str]] | None, weights: str | Sequence[float], names: list[str], N: int
) -> None:
    """Raise unless `owns` and `weights` are valid for N clients and these objectives."""
    if owns is not None:
        if len(owns) != N:
            raise ValueError(f"owns must have one entry per client ({N}), but has {len(owns)}")
        unknown = sorted({name for entry in owns for name in entry} - set(names))
        if unknown:
            raise ValueError(f"owns must name objectives ({', '.join(names)}), but has {unknown[0]!r}")
        nobody = [name for name in names if not any(name in entry for entry in owns)]
        if nobody:
            raise ValueError(f"every objective must have an owner, but {nobody[0]!r} has none")
    if isinstance(weights, str):
        if weights not in ("equal", "samples"):
            raise ValueError(f"weights must be 'equal', 'samples' or one number per client, but got {weights!r}")
    elif len(weights) != N or not all(0 < p < float("inf") for p in weights):
        raise ValueError(f"weights must be positive numbers, one per client ({N}), but got {list(weights)!r:.200}")
