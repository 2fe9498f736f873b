"""Stages that sort the entries of updates by their size in earlier rounds, for compressors that adapt to each block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.messages import Field, Message, all_finite, check
from fedcmoo.rounds import Server
from fedcmoo.sums import Sums

ENERGY, CLASSES = "update-energy", "update-classes"
"""The names of v in the server's memory, and of the entries' classes in messages."""

LAST_CLASS = 15
"""The class of the smallest entries: a class has four bits."""


@dataclass(frozen=True)
class SortedEntries(Stage):
    """Sorts the entries of updates by their size in earlier rounds, the largest first.

    The server sends every entry's class c_j to the clients, in four bits, computed from the mean squares v that
    `LearnSizes` keeps:

        c_j = min(15, floor(log2(max_k v_k / v_j)))

    Clients send the entries class by class. A block of the code then has entries of similar size, and a compressor that
    gives more bits to larger blocks wastes few bits on small entries. The server restores the original order
    after decoding, so the code stays unbiased. Clients keep no state. In the first round, entries are not sorted.

    Args:
        update: the name of the array of updates, [d] or [M, d].
    """

    update: str

    tells: ClassVar[Sequence[str]] = (CLASSES,)

    def message(self, server: Server) -> Arrays:
        return {CLASSES: classes(server.memory[ENERGY])} if ENERGY in server.memory else {}

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        order = self._order(arrays, client.told)
        return arrays if order is None else {**arrays, self.update: arrays[self.update].index_select(-1, order)}

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        order = self._order(arrays, told)
        if order is None:
            return arrays
        sent = arrays[self.update]
        return {**arrays, self.update: torch.empty_like(sent).index_copy_(-1, order, sent)}

    def _order(self, arrays: Arrays, told: Arrays) -> Tensor | None:
        """The positions of the entries in the order of their classes, [d]; None in the first round."""
        if CLASSES not in told:
            return None
        update, found = arrays[self.update], Message(classes=told[CLASSES])
        d = update.shape[-1]
        check(found, {"classes": Field((-(-d // 2),), torch.uint8)}, "the server")
        return _order(found["classes"].cpu().numpy().tobytes(), d).to(update.device)


@dataclass(frozen=True)
class LearnSizes(Stage):
    """Keeps, at the server, an exponential moving average v of the squared entries of each round's mean update u:

        v_j <- β v_j + (1 - β) u_j²

    With M updates, or with replies kept as rows (`single_replies`), u_j² is the mean of their squares. Rounds with
    squares that are not finite are skipped.

    Args:
        update: the name of the array of updates, [d] or [M, d].
        beta: β; 0.9 averages about ten rounds.
    """

    update: str
    beta: float = 0.9

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        if not sums.count:
            return
        energy = (sums[self.update] / sums.P).square().view(-1, server.sizes.d).mean(dim=0)
        if all_finite(energy):
            before = server.memory.get(ENERGY)
            server.memory[ENERGY] = energy if before is None else torch.lerp(energy, before, self.beta)


def classes(v: Tensor) -> Tensor:
    """The classes c_j of entries with mean squares v [d], two in a byte: uint8 [ceil(d / 2)].

    >>> classes(torch.tensor([1.0, 8.0, 0.0])).tolist()  # classes 3, 0 and 15
    [3, 15]
    """
    found = torch.log2(v.max() / v).nan_to_num(nan=LAST_CLASS, posinf=LAST_CLASS).clamp(max=LAST_CLASS).to(torch.uint8)
    low, high = torch.nn.functional.pad(found, (0, len(v) % 2)).view(-1, 2).unbind(dim=1)
    return low | high << 4


@lru_cache(maxsize=1)  # all clients of a round have the same
def _order(packed: bytes, d: int) -> Tensor:
    pairs = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    return torch.stack([pairs & 15, pairs >> 4], dim=1).view(-1)[:d].argsort(stable=True)
