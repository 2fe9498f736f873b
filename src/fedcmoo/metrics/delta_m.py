"""Δ_M: the cost of training all objectives together instead of each alone (appendix E.3)."""

from __future__ import annotations

from collections.abc import Sequence


def delta_m(values: Sequence[float], baselines: Sequence[float], higher_is_better: Sequence[bool]) -> float:
    """Δ_M = 100/M Σ_k (-1)^{ℓ_k} (S_k - B_k) / B_k in percent, with ℓ_k = 1 where a higher S_k is better.

    Smaller is better: 0 is as good as M separate models, negative values are better.

    Args:
        values: S, the metrics of the common model, [M].
        baselines: B, the metrics of models trained on one objective each, [M]; none of them zero.
        higher_is_better: the metrics' directions, [M].

    >>> round(delta_m([94.4, 92.6], [95.4, 93.1], [True, True]), 2)  # FedCMOO on MultiMNIST in the paper
    0.79
    """
    if any(b == 0 for b in baselines):
        raise ValueError(f"the baselines of delta_m must not be zero, but got {list(baselines)}")
    changes = [
        (b - s) / b if higher else (s - b) / b for s, b, higher in zip(values, baselines, higher_is_better, strict=True)
    ]
    return 100 * sum(changes) / len(changes)
