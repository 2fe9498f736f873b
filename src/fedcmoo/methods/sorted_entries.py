"""Updates with their entries in the order of their size in earlier rounds, for codes that adapt to each block."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.messages import Field, Message, check
from fedcmoo.rounds import Server
from fedcmoo.sums import Sums

ENERGY, CLASSES = "update-energy", "update-classes"
"""The names of v in the server's memory, and of the entries' classes in messages."""

SMALLEST = 15
"""The class of the smallest entries: a class has four bits."""


@dataclass(frozen=True)
class SortedEntries(Stage):
    """Sorts the entries of updates by their size in earlier rounds, the largest first.

    The server keeps an average of the squared mean updates u of the rounds, and sends every entry's class c_j to the
    clients, in four bits:

        v_j <- β v_j + (1 - β) u_j²,    c_j = min(15, floor(log2(max_k v_k / v_j)))

    Clients send the entries class by class. A block of the code then has entries of similar size, and a compressor that
    gives more bits to larger blocks wastes few bits on small entries. Clients keep no state, and the code stays
    unbiased, since a permutation does not change what it decodes to. In the first round nothing is sorted.

    Args:
        update: the name of the array of updates, [d] or [M, d].
        beta: β; 0.9 averages about ten rounds.
    """

    update: str
    beta: float = 0.9

    def message(self, server: Server) -> Arrays:
        return {CLASSES: classes(server.memory[ENERGY])} if ENERGY in server.memory else {}

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        return self._permuted(arrays, client.told, inverse=False)

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        return self._permuted(arrays, told, inverse=True)

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        if not sums.count:
            return
        energy = (sums[self.update] / sums.P).square().view(-1, server.sizes.d).mean(dim=0)
        before = server.memory.get(ENERGY)
        server.memory[ENERGY] = energy if before is None else torch.lerp(energy, before, self.beta)

    def _permuted(self, arrays: Arrays, told: Arrays, inverse: bool) -> Arrays:
        if CLASSES not in told:
            return arrays
        update = arrays[self.update]
        d = update.shape[-1]
        check(Message(classes=told[CLASSES]), {"classes": Field((-(-d // 2),), torch.uint8)}, "the server")
        order = _orders(told[CLASSES].cpu().numpy().tobytes(), d)[int(inverse)].to(update.device)
        return {**arrays, self.update: update.index_select(-1, order)}


def classes(v: Tensor) -> Tensor:
    """The classes c_j of entries with mean squares v [d], two in a byte: uint8 [ceil(d / 2)].

    >>> classes(torch.tensor([1.0, 8.0, 0.0])).tolist()  # classes 3, 0 and 15
    [3, 15]
    """
    found = torch.log2(v.max() / v).nan_to_num(nan=SMALLEST, posinf=SMALLEST).clamp(max=SMALLEST).to(torch.uint8)
    low, high = torch.nn.functional.pad(found, (0, len(v) % 2)).view(-1, 2).unbind(dim=1)
    return low | high << 4


@lru_cache(maxsize=1)  # all clients of a round have the same
def _orders(packed: bytes, d: int) -> tuple[Tensor, Tensor]:
    """The positions of the entries in the order of their classes, and the inverse permutation, both [d]."""
    pairs = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    order = torch.stack([pairs & 15, pairs >> 4], dim=1).view(-1)[:d].argsort(stable=True)
    return order, torch.empty_like(order).scatter_(0, order, torch.arange(d))
