"""Preferences: parse and format ratios such as 2:1, and generate evenly spread ones."""

import math
from collections.abc import Iterator, Sequence

from fedcmoo.weights.preference import check_preference

Preference = tuple[float, ...]


def parse_ratio(text: str, M: int | None = None) -> Preference:
    """Parse a preference from numbers separated by colons.

    >>> parse_ratio("2:1")
    (2.0, 1.0)
    """
    try:
        numbers = tuple(float(part) for part in text.split(":"))
    except ValueError:
        raise ValueError(
            f"a preference must be numbers with colons between them, such as 2:1, but got {text!r}"
        ) from None
    check_preference(numbers, M)
    return numbers


def ratio_text(preference: Sequence[float]) -> str:
    """The preference as text.

    >>> ratio_text((2.0, 1.0, 0.5))
    '2:1:0.5'
    """
    return ":".join(f"{number:g}" for number in preference)


def evenly_spread(n: int, M: int) -> list[Preference]:
    """n preferences, evenly spread over the simplex and off its border.

    They are points of the lattice of Das and Dennis with H steps a side, moved inwards, since a preference must be
    positive: (i_k + 1/M) / (H + 1) for whole i_k >= 0 with sum H. H is the smallest that gives n points. If it gives
    more, as for n = 5 and three objectives, points are selected one by one, each farthest from those already selected.

    Args:
        n: the number of preferences; with one objective there is only one.
        M: the number of objectives.

    Returns:
        Preferences as whole numbers in lowest terms, from the last objective to the first.

    >>> evenly_spread(5, M=2)
    [(1, 9), (3, 7), (1, 1), (7, 3), (9, 1)]
    >>> evenly_spread(3, M=3)
    [(1, 1, 4), (1, 4, 1), (4, 1, 1)]

    References:
        Das and Dennis. Normal-boundary intersection. SIAM Journal on Optimization, 1998.
    """
    if n < 1:
        raise ValueError(f"the number of preferences must be at least 1, but got {n}")
    H = 0
    while M > 1 and math.comb(H + M - 1, M - 1) < n:
        H += 1
    points: list[Preference] = []
    for steps in _farthest(list(_sums(H, M)), n):
        numbers = [M * i + 1 for i in steps]
        divisor = math.gcd(*numbers)
        points.append(tuple(number // divisor for number in numbers))
    return points


def _farthest(points: list[tuple[int, ...]], n: int) -> list[tuple[int, ...]]:
    """Select n points far from each other: greedily the farthest from those already selected, in order."""
    taken = points[-1:]
    while len(taken) < min(n, len(points)):
        taken.append(max((p for p in points if p not in taken), key=lambda p: min(math.dist(p, q) for q in taken)))
    return sorted(taken)


def _sums(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a total as a sum of a given number of whole numbers, in order."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _sums(total - first, parts - 1):
            yield (first, *rest)
