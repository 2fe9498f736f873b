"""The real data sets, where FEDCMOO_DATA has them: sizes, labels, statistics, and pictures to look at."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcmoo.data.catalogue import DATA_SETS, NEEDED_BY
from fedcmoo.data.cifar import cifar10_source, load_cifar10
from fedcmoo.data.idx import idx_files, load_idx_pair
from fedcmoo.experiments.pairs import CIFAR10MNIST, MNISTFMNIST, ComposedPairs, MultiMNIST
from tests.experiments.samples import everything

pytestmark = pytest.mark.real_data


def folder_with(*names: str) -> Path:
    """The data folder, or a skip with the reason."""
    if not os.environ.get("FEDCMOO_DATA"):
        pytest.skip("set FEDCMOO_DATA to a folder with the real data sets")
    folder = Path(os.environ["FEDCMOO_DATA"])
    for name in names:
        missing = DATA_SETS[name].missing(folder)
        if missing:
            pytest.skip(f"FEDCMOO_DATA lacks {missing[0]}")
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_sets(name: str) -> None:
    folder = folder_with(name)
    images, labels = load_idx_pair(*idx_files(folder, name, train=True))
    assert images.shape == (60_000, 28, 28)
    assert images.mean() / 255 == pytest.approx({"mnist": 0.1307, "fashion-mnist": 0.2860}[name], abs=1e-4)
    counts = np.bincount(labels)
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949] or set(counts) == {6000}
    images, labels = load_idx_pair(*idx_files(folder, name, train=False))
    assert images.shape == (10_000, 28, 28)
    assert len(labels) == 10_000


def test_cifar10() -> None:
    folder = folder_with("cifar10")
    for train, count in ((True, 50_000), (False, 10_000)):
        images, labels = load_cifar10(cifar10_source(folder), train)
        assert images.shape == (count, 3, 32, 32)
        assert np.bincount(labels).tolist() == [count // 10] * 10
    means = images.mean(axis=(0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.494, 0.485, 0.450], abs=0.01)


@pytest.mark.parametrize("kind", [MultiMNIST, MNISTFMNIST, CIFAR10MNIST])
def test_problems(kind: type[ComposedPairs]) -> None:
    folder = folder_with(*NEEDED_BY[kind.name])
    settings = kind()
    problem = settings.build(0, folder)
    pairs = settings.train_pairs
    assert [len(problem.client(i)) for i in range(100)] == [pairs * 8 // 1000] * 100
    assert (len(problem.validation), len(problem.test)) == (pairs // 5, 10_000)
    skew = settings.skew(0, folder)
    assert skew.partition.reused == 0
    assert all(counts.sum() == pairs * 8 // 10 for counts in skew.counts.values())
    _, targets = everything(problem.test)
    assert all(torch.bincount(target).min() > 800 for target in targets)
