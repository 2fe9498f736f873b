"""How much the accuracies of a finished run depend on which test images are paired.

python benchmarks/pairings.py RUN
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from fedcmoo.config import saved
from fedcmoo.experiments.pairs import ComposedPairs
from fedcmoo.run_folder import MODEL

PAIRINGS = 12


@torch.no_grad()
def accuracies(model: nn.Module, problem: ComposedPairs, data: Path | None) -> list[float]:
    """The test accuracies of both objectives, in percent."""
    test = replace(problem, train_pairs=1).splits(data).test
    inputs, targets = test.batch(torch.arange(len(test)))
    return [100 * (o.argmax(dim=1) == t).double().mean().item() for o, t in zip(model(inputs), targets, strict=True)]


def main(folder: Path) -> None:
    config = saved(folder)
    problem, data = config.problem, None if config.data is None else Path(config.data)
    assert isinstance(problem, ComposedPairs)
    model = problem.model().eval()
    model.load_state_dict(load_file(folder / MODEL))
    own = np.array(accuracies(model, problem, data))
    seeds = [seed for seed in range(PAIRINGS + 1) if seed != problem.composition_seed][:PAIRINGS]
    others = np.array([accuracies(model, replace(problem, composition_seed=seed), data) for seed in seeds])
    error = others.std(axis=0, ddof=1) / PAIRINGS**0.5
    for k, name in enumerate(problem.objective_names):
        mean = f"{others[:, k].mean():.2f} ± {error[k]:.2f}"
        print(f"{name}: {own[k]:.2f} with the run's pairs, {mean} with {PAIRINGS} others")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
