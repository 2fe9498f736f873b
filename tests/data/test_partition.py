"""Partitions: equal sizes, no sample twice unless it must be, the skew that alpha promises, an end for any alpha."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcmoo.data.partition import Partition, by_key, by_label, composite, dirichlet, iid
from fedcmoo.data.skew import draw_skew, measure_skew

LABELS = np.random.default_rng(0).integers(100, size=6000)


def together(partition: Partition) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.concatenate(partition.indices)


@pytest.mark.parametrize("alpha", [1e-300, 1e-8, 1e-2, 0.3, 10.0, 1e8])
@pytest.mark.parametrize("clients", [1, 7, 100, 6000])
def test_dirichlet_sizes(alpha: float, clients: int) -> None:
    partition = dirichlet(LABELS, clients, alpha, np.random.default_rng(1))
    assert {len(index) for index in partition.indices} == {6000 // clients}
    dealt = together(partition)
    assert len(np.unique(dealt)) == len(dealt)
    assert partition.reused == 0
    assert partition.unused == 6000 - len(dealt)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 2.0])
def test_dirichlet_skew_has_the_closed_form(alpha: float) -> None:
    # With samples in plenty no label runs out, and for p ~ Dirichlet(alpha, ..., alpha) of C labels
    # E sum_c p_c^2 = (alpha + 1) / (C alpha + 1).
    classes, share = 5, 200
    labels = np.repeat(np.arange(classes), 200 * share)
    partition = dirichlet(labels, 200, alpha, np.random.default_rng(0), share)
    counts = measure_skew(partition, {"label": labels}).counts["label"].astype(float)
    # sum n (n - 1) / (S (S - 1)) estimates sum p^2 of a multinomial without bias.
    squares = (counts * (counts - 1)).sum(axis=1) / (share * (share - 1))
    expected = (alpha + 1) / (classes * alpha + 1)
    assert squares.mean() == pytest.approx(expected, abs=4 * squares.std() / np.sqrt(200))


def test_dirichlet_of_tiny_alpha_stays_skewed_when_labels_run_out() -> None:
    partition = dirichlet(LABELS, 100, 1e-300, np.random.default_rng(0))
    labels = [len(np.unique(LABELS[index])) for index in partition.indices]
    assert np.mean(labels) < 5


def test_dirichlet_reuses_and_says_so() -> None:
    partition = dirichlet(LABELS, 100, 0.3, np.random.default_rng(0), samples_per_client=90)
    assert {len(index) for index in partition.indices} == {90}
    times = np.bincount(together(partition), minlength=6000)
    assert times.max() == 2
    assert partition.reused == (times == 2).sum() > 0


def test_dirichlet_with_labels_that_are_rare() -> None:
    labels = np.array([0] * 97 + [5, 6, 7])
    partition = dirichlet(labels, 10, 0.1, np.random.default_rng(0))
    assert sorted(together(partition)) == list(range(100))


def test_seed_decides() -> None:
    first, again, other = (dirichlet(LABELS, 10, 0.3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first.indices, again.indices, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.indices, other.indices, strict=True))


def test_iid() -> None:
    partition = iid(1003, 10, np.random.default_rng(0))
    assert {len(index) for index in partition.indices} == {100}
    assert partition.unused == 3
    assert partition.reused == 0
    more = iid(100, 10, np.random.default_rng(0), samples_per_client=25)
    times = np.bincount(together(more))
    assert set(times) == {2, 3}
    assert more.reused == 100


def test_by_label() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    partition = by_label(labels, 20, np.random.default_rng(0), shards_per_client=2)
    assert {len(index) for index in partition.indices} == {50}
    assert all(len(np.unique(labels[index])) <= 2 for index in partition.indices)
    assert sorted(together(partition)) == list(range(1000))


def test_by_key() -> None:
    keys = np.array(["c", "a", "b", "a", "c", "a"])
    partition = by_key(keys)
    assert partition.names == ["a", "b", "c"]
    assert [index.tolist() for index in partition.indices] == [[1, 3, 5], [2], [0, 4]]


def test_composite_tells_combinations_apart() -> None:
    rng = np.random.default_rng(0)
    targets = [rng.integers(10, size=500), rng.integers(3, size=500), rng.integers(2, size=500)]
    labels = composite(targets)
    assert len(np.unique(labels)) == len(np.unique(np.stack(targets), axis=1).T)
    assert labels.max() < 60


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"alpha": 0.0}, "alpha must be positive and finite, but got 0"),
        ({"alpha": float("nan")}, "alpha must be positive"),
        ({"clients": 0}, "clients must be a whole number of at least 1"),
        ({"clients": 7000}, "7000 clients need at least 7000 samples"),
        ({"samples_per_client": 0}, "samples_per_client"),
    ],
)
def test_refuses(arguments: dict[str, float], complaint: str) -> None:
    settings = {"clients": 10, "alpha": 0.3, **arguments}
    with pytest.raises(ValueError, match=complaint):
        dirichlet(LABELS, rng=np.random.default_rng(0), **settings)  # type: ignore[arg-type]


def test_skew_counts_and_figure(tmp_path: Path) -> None:
    left, right = np.array([0, 1, 1, 2]), np.array([[1, 0], [1, 1], [0, 0], [1, 0]])
    skew = measure_skew(Partition([np.array([0, 1]), np.array([2, 3])], samples=4), {"left": left, "right": right})
    assert skew.counts["left"].tolist() == [[1, 1, 0], [0, 1, 1]]
    assert skew.counts["right"].tolist() == [[2, 1], [1, 0]]
    assert skew.distance("left").tolist() == [0.25, 0.25]
    assert skew.lines()[0] == "2 clients with 2 samples each, 4 of a set of 4"
    figure = draw_skew(skew)
    assert [panel.get_title() for panel in figure.axes[:2]] == ["left", "right"]
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), [[0.5, 0.5, 0], [0, 0.5, 0.5]])
    figure.savefig(tmp_path / "skew.png")
    assert (tmp_path / "skew.png").stat().st_size > 1000
