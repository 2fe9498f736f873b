"""Partition the samples of one data set over clients.

Every function takes a NumPy generator for its randomness and returns a `Partition`: the sample indices of each
client. All but `by_key` give every client the same number of samples.

>>> rng = np.random.default_rng(0)
>>> labels = rng.integers(10, size=1000)
>>> parts = dirichlet(labels, clients=20, alpha=0.3, rng=rng)
>>> {len(index) for index in parts.indices}, parts.reused
({50}, 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcmoo.validation import at_least_one, positive

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """Which samples each client has.

    Attributes:
        indices: the sample indices of each client, int64.
        samples: the number of samples of the whole data set.
        names: the name of each client; its number, unless it comes from a natural key.
        reused: the number of samples assigned more than once.
        unused: the number of samples assigned to no client.
    """

    indices: Sequence[IntArray]
    samples: int
    names: Sequence[str] = ()
    reused: int = field(init=False)
    unused: int = field(init=False)

    def __post_init__(self) -> None:
        times = np.bincount(np.concatenate(self.indices), minlength=self.samples)
        object.__setattr__(self, "reused", int((times > 1).sum()))
        object.__setattr__(self, "unused", int((times == 0).sum()))
        if not self.names:
            object.__setattr__(self, "names", [str(i) for i in range(len(self.indices))])

    def of(self, chosen: IntArray, samples: int) -> Partition:
        """The same partition as indices into a larger set of `samples`, of which it divides only those in `chosen`."""
        return Partition([chosen[index] for index in self.indices], samples, self.names)


def dirichlet(
    labels: IntArray, clients: int, alpha: float, rng: np.random.Generator, samples_per_client: int | None = None
) -> Partition:
    """Label skew with equal client sizes: client i draws its samples' labels from p_i ~ Dirichlet(alpha, ..., alpha).

    Labels are assigned in rounds. In each round every client requests all the samples it still lacks, with labels drawn
    from p_i restricted to the remaining labels. If a label has enough samples, all requests for it are granted; else a
    random choice of them is, and the label is exhausted. So a client whose label is exhausted draws again among the
    others, no client has precedence, and there are at most as many rounds as labels, for any alpha. A client whose p_i
    has no mass on the remaining labels (tiny alpha) draws a new p_i over them.

    If the clients together ask for more samples than exist, each sample may be assigned ceil(asked / samples) times;
    `reused` counts those assigned more than once.

    Args:
        labels: the label of each sample, int64 [n]; the composite label if there are several objectives.
        clients: the number of clients N.
        alpha: concentration, positive; small values skew, large ones are uniform over the labels.
        rng: the source of all randomness.
        samples_per_client: by default an equal share, n // N.
    """
    positive(alpha=alpha)
    share = _share(len(labels), clients, samples_per_client)
    values, position = np.unique(labels, return_inverse=True)
    pools = [rng.permutation(np.flatnonzero(position == c)) for c in range(len(values))]
    copies = -(-clients * share // len(labels))
    supply = copies * np.array([len(pool) for pool in pools])
    wanted = _dirichlet_rows(alpha, clients, len(values), rng)
    counts = _allocate(wanted, np.full(clients, share), supply, alpha, rng)
    indices = _assign(counts, pools, copies, rng)
    return Partition(indices, len(labels))


def iid(samples: int, clients: int, rng: np.random.Generator, samples_per_client: int | None = None) -> Partition:
    """Shuffle the samples and cut them into equal shares; after the last sample, shuffle again."""
    share = _share(samples, clients, samples_per_client)
    copies = -(-clients * share // samples)
    order = np.concatenate([rng.permutation(samples) for _ in range(copies)])
    return Partition([order[i * share : (i + 1) * share] for i in range(clients)], samples)


def by_label(labels: IntArray, clients: int, rng: np.random.Generator, shards_per_client: int = 2) -> Partition:
    """Sort the samples by label, cut them into N * shards_per_client equal shards, and distribute the shards.

    A client thus has about `shards_per_client` labels: the strongest skew in common use. Samples that do not fill a
    shard are unused.
    """
    at_least_one(shards_per_client=shards_per_client)
    shards = clients * shards_per_client
    size = _share(len(labels), shards, None)
    # Shuffled before a stable sort, so that the samples of a label are assigned to shards at random.
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    assigned = rng.permutation(shards).reshape(clients, shards_per_client)
    pieces = order[: shards * size].reshape(shards, size)
    return Partition([pieces[row].reshape(-1) for row in assigned], len(labels))


def by_key(keys: Sequence[Any] | NDArray[Any]) -> Partition:
    """One client per distinct key (a user, a hospital, a device), in the order of the keys; client sizes may differ.

    >>> by_key(["bob", "ann", "bob"]).names, [i.tolist() for i in by_key(["bob", "ann", "bob"]).indices]
    (['ann', 'bob'], [[1], [0, 2]])
    """
    if len(keys) == 0:
        raise ValueError("by_key needs at least one sample, but got none")
    values, position = np.unique(np.asarray(keys), return_inverse=True)
    order = np.argsort(position, kind="stable")
    cuts = np.cumsum(np.bincount(position))[:-1]
    return Partition(np.split(order, cuts), len(keys), [str(value) for value in values])


def composite(targets: Sequence[IntArray]) -> IntArray:
    """One label per combination of the targets' values: y_1 * C_2 * ... * C_M + ... + y_M.

    >>> composite([np.array([0, 2]), np.array([3, 9])]).tolist()
    [3, 29]
    """
    label = np.zeros(len(targets[0]), dtype=np.int64)
    for target in targets:
        label = label * (int(target.max()) + 1) + target
    return label


def _share(samples: int, clients: int, samples_per_client: int | None) -> int:
    """Check and return the number of samples per client."""
    at_least_one(clients=clients)
    if samples_per_client is None:
        if samples < clients:
            raise ValueError(f"{clients} clients need at least {clients} samples, but there are {samples}")
        return samples // clients
    if samples_per_client < 1 or samples < 1:
        raise ValueError(
            f"samples_per_client and the samples must be at least 1, but got {samples_per_client} and {samples}"
        )
    return samples_per_client


def _dirichlet_rows(alpha: float, rows: int, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws from Dirichlet(alpha, ..., alpha), [rows, size]; on underflow, from its limit for alpha -> 0."""
    p = rng.dirichlet(np.full(size, alpha), rows)
    lost = ~np.isfinite(p).all(axis=1) | (p.sum(axis=1) <= 0)
    p[lost] = np.eye(size)[rng.integers(size, size=int(lost.sum()))]
    return p


def _allocate(
    wanted: NDArray[np.float64], missing: IntArray, supply: IntArray, alpha: float, rng: np.random.Generator
) -> IntArray:
    """Run the rounds of requests; returns the number of samples of each label for each client, [N, C].

    Rows sum to `missing`, columns to at most `supply`.
    """
    counts = np.zeros(wanted.shape, dtype=np.int64)
    missing, supply = missing.copy(), supply.copy()
    while missing.any():
        remaining = supply > 0
        left = np.where(remaining, wanted, 0.0)
        without = np.flatnonzero(left.sum(axis=1) <= 0)
        left[np.ix_(without, remaining)] = _dirichlet_rows(alpha, len(without), int(remaining.sum()), rng)
        requests = rng.multinomial(missing, left / left.sum(axis=1, keepdims=True))
        for c in np.flatnonzero(requests.sum(axis=0) > supply):
            requests[:, c] = rng.multivariate_hypergeometric(requests[:, c], supply[c], method="marginals")
        counts += requests
        missing -= requests.sum(axis=1)
        supply -= requests.sum(axis=0)
    return counts


def _assign(counts: IntArray, pools: Sequence[IntArray], copies: int, rng: np.random.Generator) -> list[IntArray]:
    """Give client i counts[i, c] samples of each label's pool (repeated `copies` times), in random order."""
    taken = [np.tile(pool, copies)[:n] for pool, n in zip(pools, counts.sum(axis=0), strict=True)]
    owner = np.concatenate([np.repeat(np.arange(len(counts)), column) for column in counts.T])
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    return np.split(np.concatenate(taken)[order], np.cumsum(counts.sum(axis=1))[:-1])
