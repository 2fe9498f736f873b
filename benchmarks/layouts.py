"""Processor time of a training step of the paper's image networks: blocked layout against channels-last.

python benchmarks/layouts.py
"""

import time
from statistics import median

import torch
from torch import nn

from fedcmoo.models.images import CNN, LeNet, SharedEncoder
from fedcmoo.parameters import FlatModel
from fedcmoo.worker import keep_freed_memory

BATCH, REPEATS = 128, 15


def milliseconds(model: FlatModel, images: torch.Tensor, steps: int) -> float:
    """The mean processor time of a training step."""
    start = time.process_time()
    for _ in range(steps):
        model.grad.zero_()
        sum(output.logsumexp(dim=1).mean() for output in model(images)).backward()
        model.x.sub_(model.grad, alpha=1e-3)
    return 1e3 * (time.process_time() - start) / steps


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    for network, shape, steps in ((LeNet, (1, 28, 28), 20), (CNN, (3, 32, 32), 2)):
        images = torch.randn(BATCH, *shape)
        plain: SharedEncoder = network()
        plain.encoder = nn.Sequential(*plain.encoder.children())
        models = [FlatModel(module) for module in (network(), plain)]
        pairs = [[milliseconds(model, images, steps) for model in models] for _ in range(REPEATS + 1)][1:]
        blocked, channels_last = (median(times) for times in zip(*pairs, strict=True))
        ratio = median(first / second for first, second in pairs)
        print(f"{network.__name__}: blocked {blocked:.1f} ms, channels-last {channels_last:.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
