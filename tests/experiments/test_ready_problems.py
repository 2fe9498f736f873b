"""The ready-made problems on small files in the official layouts: shapes, sizes, seeds, settings."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcmoo.cli.resolving import resolve
from fedcmoo.data.compose import overlay
from fedcmoo.experiments import PROBLEMS
from fedcmoo.experiments.images import ImageProblem, TwoObjectives
from fedcmoo.experiments.losses import Scaled, attribute_accuracy, l2
from fedcmoo.experiments.pairs import CIFAR10MNIST, MNISTFMNIST, ComposedPairs, MultiMNIST, load
from fedcmoo.experiments.two_digits import TwoDigits
from tests.data.test_cifar import write as write_cifar
from tests.data.test_idx import idx_bytes
from tests.experiments.samples import everything

SMALL: dict[str, Any] = {"clients": 4, "train_pairs": 100, "test_pairs": 30}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST and FashionMNIST of 50 training and 20 test images, CIFAR-10 of 15 and 3."""
    path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name in ("MNIST", "FashionMNIST"):
        raw = path / name / "raw"
        raw.mkdir(parents=True)
        for part, count in (("train", 50), ("t10k", 20)):
            images = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
            labels = rng.permutation(np.arange(count, dtype=np.uint8) % 10)
            (raw / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    write_cifar(path, "binary folder")
    return path


@pytest.mark.parametrize(
    ("kind", "shape", "parameters", "names"),
    [
        (MultiMNIST, (1, 28, 28), 34_635, ["left", "right"]),
        (MNISTFMNIST, (1, 28, 28), 34_635, ["digit", "article"]),
        (CIFAR10MNIST, (3, 32, 32), 1_726_508, ["picture", "digit"]),
    ],
)
def test_composed_problems(
    folder: Path, kind: type[ComposedPairs], shape: tuple[int, ...], parameters: int, names: list[str]
) -> None:
    problem = kind(**SMALL).build(0, folder)
    assert problem.name == kind.name
    assert [objective.name for objective in problem.objectives] == names
    assert sum(p.numel() for p in problem.model.parameters()) == parameters
    assert [len(problem.client(i)) for i in range(problem.N)] == [20] * 4
    assert (len(problem.validation), len(problem.test)) == (20, 30)
    inputs, targets = everything(problem.test)
    assert inputs.shape == (30, *shape)
    assert [target.dtype for target in targets] == [torch.int64] * 2
    problem.check()
    turned = problem.transform(inputs, torch.Generator()) if problem.transform else inputs
    assert turned.shape == inputs.shape
    assert not torch.equal(turned, inputs)
    pickle.dumps(problem)


def test_train_and_validation_share_no_pair(folder: Path) -> None:
    splits, partition = MultiMNIST(**SMALL).federate(0, folder)
    held_out = set(splits.validation.index.tolist())  # type: ignore[union-attr]
    dealt = {i for index in partition.indices for i in index.tolist()}
    assert len(held_out) == 20
    assert len(dealt) == 80
    assert not held_out & dealt


def test_pairs_have_the_labels_of_their_images(folder: Path) -> None:
    settings = MultiMNIST(**SMALL)
    digits, labels = load(folder, "mnist", train=False)
    test = settings.splits(folder).test
    left, right = (target.numpy() for target in test.targets)
    for n in range(10):
        fits = [
            (i, j)
            for i in np.flatnonzero(labels == left[n])
            for j in np.flatnonzero(labels == right[n])
            if np.array_equal(overlay(digits, digits, np.array([i]), np.array([j]), 36, 6)[0], test.images[n])
        ]
        assert len(fits) == 1


def test_seeds(folder: Path) -> None:
    def parts(seed: int, **settings: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        problem = MultiMNIST(**SMALL, **settings).build(seed, folder)
        weights = torch.cat([p.detach().flatten() for p in problem.model.parameters()])
        return everything(problem.client(1))[0], everything(problem.test)[0], weights

    state = torch.random.get_rng_state()
    first, again, other, composed = parts(0), parts(0), parts(1), parts(0, composition_seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[1], other[1])
    assert not torch.equal(first[2], other[2])
    assert not torch.equal(first[1], composed[1])
    assert torch.equal(first[2], composed[2])


def test_validation_share_and_samples_per_client(folder: Path) -> None:
    problem = MultiMNIST(**SMALL, validation_share=0.0, samples_per_client=40).build(0, folder)
    assert problem.validation is None
    assert [len(problem.client(i)) for i in range(4)] == [40] * 4
    skew = MultiMNIST(**SMALL, validation_share=0.0, samples_per_client=40).skew(0, folder)
    assert skew.partition.reused > 0
    assert skew.counts["left"].sum(axis=1).tolist() == [40] * 4


def test_partition_of_the_paper_is_skewed_and_iid_is_not(folder: Path) -> None:
    skewed = TwoDigits(clients=20).skew(0)
    even = TwoDigits(clients=20, partition="iid").skew(0)
    assert skewed.sizes.tolist() == even.sizes.tolist() == [1000] * 20
    assert skewed.distance("left").mean() > 2 * even.distance("left").mean()
    sharp = TwoDigits(clients=20, partition="by-label").skew(0)
    assert sharp.sizes.tolist() == [1000] * 20
    # Two shards of 500 samples, sorted by 100 combinations of about 200 samples each: at most four in a shard.
    assert max(np.count_nonzero(sharp.counts["left"], axis=1)) <= 4
    assert sharp.distance("left").mean() > skewed.distance("left").mean()


def test_first_loss(folder: Path) -> None:
    problem = TwoDigits(first_loss="l2", train_pairs=100, clients=2).build(0)
    assert problem.objectives[0].loss == Scaled(l2, 1.0)
    assert problem.objectives[1].loss is not l2
    logits, target = torch.randn(6, 10), torch.arange(6)
    expected = 0.0
    for row, label in zip(logits.softmax(dim=1).tolist(), target.tolist(), strict=True):
        expected += sum((p - (c == label)) ** 2 for c, p in enumerate(row)) / 60
    assert l2(logits, target).item() == pytest.approx(expected, rel=1e-5)


def test_attribute_accuracy() -> None:
    logits = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert attribute_accuracy(logits, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).item() == 0.75


def test_registry() -> None:
    tables = ["mixed-digits", "digit-groups", "loans", "couples"]
    images = ["multimnist", "mnist-fmnist", "cifar10-mnist", "celeba", "celeba5"]
    assert list(PROBLEMS) == ["two-digits", *tables, *images, "qm9", "own"]
    for name, kind in PROBLEMS.items():
        assert kind.name == name
        assert "\n" not in kind.title
        assert kind() == kind()
        assert pickle.loads(pickle.dumps(kind())) == kind()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"clients": 0}, "clients must be a whole number of at least 1, but got 0"),
        ({"samples_per_client": -1}, "samples_per_client must be zero or positive, and finite, but got -1"),
        (
            {"partition": "by-label", "samples_per_client": 5},
            "samples_per_client must be 0 where samples are distributed by",
        ),
        ({"partition": "odd"}, "partition must be 'dirichlet', 'by-label' or 'iid', but got 'odd'"),
        ({"alpha": 0.0}, "alpha must be positive and finite, but got 0.0"),
        ({"validation_share": 1.0}, "validation_share must be at least 0 and below 1, but got 1.0"),
        ({"first_loss": "l1"}, "first_loss must be 'nll' or 'l2', but got 'l1'"),
        ({"train_pairs": 0}, "train_pairs must be a whole number of at least 1, but got 0"),
        ({"rotation": 200.0}, r"rotation must be in \[0, 180\], but got 200.0"),
    ],
)
def test_refuses(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MultiMNIST(**settings)


def test_two_digits_refuses() -> None:
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, but got 1"):
        TwoDigits(dropout=1.0)
    assert isinstance(TwoDigits(), ImageProblem)


def test_partial_label_sets_are_those_of_their_description() -> None:
    problem = TwoDigits(label_sets="partial", clients=20, train_pairs=200, validation_pairs=10, test_pairs=10).build(4)
    owned = [problem.share(i).owned for i in range(20)]
    assert [owned.count(labels) for labels in ((True, False), (False, True), (True, True))] == [10, 6, 4]
    full = TwoDigits(clients=20, train_pairs=200, validation_pairs=10, test_pairs=10).build(4)
    for i in range(20):
        (x, targets), (y, all_targets) = everything(problem.client(i)), everything(full.client(i))
        assert torch.equal(x, y)
        assert all(t is None or torch.equal(t, u) for t, u in zip(targets, all_targets, strict=True))
    with pytest.raises(ValueError, match="label_sets must be 'full' or 'partial', but got 'some'"):
        TwoDigits(label_sets="some")  # type: ignore[arg-type]


def test_table_2_has_presets() -> None:
    for name in ("multimnist", "cifar10-mnist"):
        plain, l2 = resolve(name, "fedcmoo"), resolve(f"{name}-l2", "fedcmoo")
        assert isinstance(plain.problem, TwoObjectives)
        assert l2 == replace(plain, problem=replace(plain.problem, first_loss="l2"))
