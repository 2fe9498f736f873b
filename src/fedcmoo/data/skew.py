"""The label skew of a partition: counts per client and objective, and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.partition import IntArray, Partition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_PER_ROW = 8


@dataclass(frozen=True)
class Skew:
    """The labels that each client has.

    Attributes:
        partition: the partition described.
        counts: for each objective the number of samples per client and class, [N, C]; for an objective with several
            binary attributes, the number of samples that have each attribute.
    """

    partition: Partition
    counts: Mapping[str, IntArray]

    @property
    def sizes(self) -> IntArray:
        """The number of samples of each client, [N]."""
        return np.array([len(index) for index in self.partition.indices])

    def shares(self, objective: str) -> NDArray[np.float64]:
        """Each class's share of a client's samples, [N, C]."""
        return self.counts[objective] / self.sizes[:, None]

    def distance(self, objective: str) -> NDArray[np.float64]:
        """Half the l1 distance of each client's shares to those of all clients together, [N]: 0 for no skew."""
        total = self.counts[objective].sum(axis=0) / self.sizes.sum()
        return np.asarray(np.abs(self.shares(objective) - total).sum(axis=1) / 2)

    def lines(self) -> list[str]:
        """A short text report."""
        sizes, parts = self.sizes, self.partition
        spread = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
        lines = [
            f"{len(sizes)} clients with {spread} samples each, {sizes.sum()} of a set of {parts.samples}",
            f"{parts.reused} samples are assigned more than once, {parts.unused} to no client (held out or left over)",
        ]
        for objective, counts in self.counts.items():
            seen, distance = (counts > 0).sum(axis=1), self.distance(objective)
            lines.append(
                f"{objective}: a client has {seen.mean():.1f} of {counts.shape[1]} classes "
                f"({seen.min()} to {seen.max()}); distance to the overall shares {distance.mean():.2f} "
                f"({distance.min():.2f} to {distance.max():.2f})"
            )
        return lines


def measure_skew(partition: Partition, targets: Mapping[str, NDArray[np.generic]]) -> Skew:
    """Count the labels of each client.

    Args:
        partition: the samples of each client.
        targets: the labels of each objective: integers [n], or binary attributes as 0 and 1, [n, C].
    """
    counts = {}
    for name, target in targets.items():
        if target.ndim == 2:
            rows = [target[index].astype(np.int64).sum(axis=0) for index in partition.indices]
        else:
            labels = target.astype(np.int64)
            classes = int(labels.max()) + 1
            rows = [np.bincount(labels[index], minlength=classes) for index in partition.indices]
        counts[name] = np.stack(rows)
    return Skew(partition, counts)


def draw_skew(skew: Skew) -> Figure:
    """Plot one panel per objective with labels: a row per client, a column per class, darker for a larger share."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = list(skew.counts)
    if not names:
        raise ValueError("a figure of the skew needs at least one objective with labels, but there is none")
    columns = min(len(names), PANELS_PER_ROW)
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.2 + 2.2 * columns, 0.6 + 3.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    top = max(float(skew.shares(name).max()) for name in names)
    for panel, name in zip(panels.flat, names, strict=False):
        image = panel.imshow(skew.shares(name), aspect="auto", cmap="Greys", vmin=0, vmax=top, interpolation="none")
        panel.set(title=name, xlabel="class", ylabel="client")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in panels.flat[len(names) :]:
        panel.set_axis_off()
    figure.colorbar(image, ax=panels, label="share of the client's samples")
    return figure
