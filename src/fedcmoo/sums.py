"""Sums over a cohort: replies are added up as they arrive, so memory does not grow with the cohort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo.messages import Add, Message
from fedcmoo.ownership import Share
from fedcmoo.types import Vector


@dataclass
class Masking:
    """The cost of secure sums in addition to the codes: bytes in both directions, and seconds."""

    up: int = 0
    down: int = 0
    seconds: float = 0.0


class Sums:
    """Running sums of the replies to an ask. Array `key` of contribution `name` is called "name/key".

    >>> sums = Sums()
    >>> sums.add({"train/update": torch.tensor([1.0, 2.0])}, nbytes=8)
    >>> sums.add({"train/update": torch.tensor([3.0, 2.0])}, nbytes=8)
    >>> sums.count, sums.mean("train/update").tolist(), sums.uploaded
    (2, [2.0, 2.0], 16)
    >>> sums.part("train")["update"].tolist()
    [4.0, 4.0]

    Attributes:
        count: the number of clients that replied.
        P: the sum of their weights p_i; the number of clients if all have weight 1.
        P_k: for each objective the sum of its owners' weights, float64 [M]; None if all clients have weight 1 and own
            all objectives.
        uploaded: the bytes of their replies.
        totals: the sums by name.
        noise: the standard deviation of the noise in each entry of totals with noise, by name.
        failures: why clients did not reply.
        stalled: the failed clients that did not reply in time.
        client_states: the new memories, by client, if the server accepts the round.
        masking: the cost of hiding single replies.
    """

    def __init__(self) -> None:
        self.count = 0
        self.P: float = 0
        self.P_k: Tensor | None = None
        self.uploaded = 0
        self.totals: dict[str, Tensor] = {}
        self.noise: dict[str, float] = {}
        self.failures: dict[int, str] = {}
        self.stalled: set[int] = set()
        self.client_states: dict[int, Message] = {}
        self.masking = Masking()
        self._how: dict[str, Add] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self.totals[name]

    def add(
        self,
        arrays: Mapping[str, Tensor],
        nbytes: int,
        how: Mapping[str, Add] | None = None,
        share: Share | None = None,
    ) -> None:
        """Add one client's arrays, which cost `nbytes` to upload. The arrays are not kept.

        Args:
            arrays, nbytes: the arrays by name, and the size of the client's reply.
            how: the way to add each array: "sum" (the default), "newest" to keep the last, "each" to stack as rows.
            share: the client's weight and objectives; None in a cohort whose clients all have weight 1 and own all.
        """
        self._how |= how or {}
        self._add(arrays, copy=True)
        self.count += 1
        self._add_weights(1 if share is None else share.weight, None if share is None else share.weights)
        self.uploaded += nbytes

    def merge(self, later: Sums) -> None:
        """Add the sums of later clients."""
        self._how |= later._how
        self._add(later.totals, copy=False)
        self.count += later.count
        self._add_weights(later.P, later.P_k)
        self.uploaded += later.uploaded
        self.failures |= later.failures
        self.stalled |= later.stalled
        self.client_states |= later.client_states

    def mean(self, name: str) -> Tensor:
        """The average over the clients that replied: 1/P Σ p_i a_i, where clients have sent p_i a_i."""
        return self.totals[name] / self.P

    def objective_mean(self, name: str) -> Tensor:
        """The average of an array [M, ...] over each objective's owners: row k is 1/P_k Σ p_i a_{i,k}.

        A row is NaN if none of the clients owns its objective.
        """
        total = self.totals[name]
        if self.P_k is None:
            return total / self.P
        return total / self.P_k.to(total).reshape(-1, *[1] * (total.ndim - 1))

    def pair_mean(self, products: Tensor) -> Tensor:
        """Sums of products of two objectives' arrays, [M, M], with entry (j, k) divided by P_j P_k."""
        if self.P_k is None:
            return products / self.P**2
        return products / torch.outer(self.P_k, self.P_k).to(products)

    def objective_noise(self, name: str) -> Vector:
        """The standard deviation of the noise in the entries of each row of `objective_mean`: [M], or [1] for all."""
        if name not in self.noise:
            return np.zeros(1)
        divisors = torch.tensor([float(self.P)]) if self.P_k is None else self.P_k
        return self.noise[name] / divisors.double().numpy()

    def part(self, prefix: str) -> Sums:
        """The sums of one contribution, by the names of its arrays."""
        part = Sums()
        part.count, part.failures = self.count, self.failures
        part.P, part.P_k = self.P, self.P_k
        start = f"{prefix}/"
        part.totals = {n.removeprefix(start): array for n, array in self.totals.items() if n.startswith(start)}
        part.noise = {n.removeprefix(start): std for n, std in self.noise.items() if n.startswith(start)}
        return part

    def _add_weights(self, P: float, P_k: Tensor | None) -> None:
        self.P += P
        if P_k is not None:
            self.P_k = P_k if self.P_k is None else self.P_k + P_k

    def _add(self, arrays: Mapping[str, Tensor], copy: bool) -> None:
        for name, array in arrays.items():
            if name not in self.totals or self._how.get(name) == "newest":
                self.totals[name] = array.clone() if copy else array
            elif self._how.get(name) == "each":
                self.totals[name] = torch.cat([self.totals[name], array])
            else:
                self.totals[name] += array
