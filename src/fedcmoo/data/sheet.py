"""A contact sheet: the first images of a data set with their labels, to look at before training on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcmoo.data.images import ImageData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def contact_sheet(data: ImageData, rows: int = 4, columns: int = 8) -> Figure:
    """The first rows x columns images, as they are stored (not normalised), titled with their targets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.1 * columns, 1.3 * rows), layout="constrained")
    for i, panel in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
        panel.set_axis_off()
        if i < len(data):
            image = data.images[i].permute(1, 2, 0).numpy()
            panel.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="none")
            panel.set_title(", ".join(str(target[i].tolist()) for target in data.targets), fontsize=8)
    return figure
