"""Does error feedback pay? Clients keep what compression lost, and add it to their next update.

python benchmarks/error_feedback.py ROUNDS SEED CLIENTS [NAME ...]
    Accuracies on two-digits every ten rounds, with ten of CLIENTS clients in each: the library's unbiased code without
    state, and error feedback with a contraction of the same code and with top-k, at equal bytes.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcmoo import FedCMOO, fit
from fedcmoo.client import Client
from fedcmoo.compression import Rotated, TopK
from fedcmoo.compression.rotated import SEED_BYTES, _blocks
from fedcmoo.compression.rotation import Rotation
from fedcmoo.contributions import Arrays, Channel, Contribution, Stage
from fedcmoo.engines import Local
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.messages import Message
from fedcmoo.methods.compressed import Compressed


@dataclass(frozen=True)
class Contracted(Rotated):
    """The rotated code with the scale s = <z, q> / ||q||² of least error in each block: biased, but a contraction."""

    def encode(self, h: Tensor, budget: int, random: torch.Generator) -> Message:
        code, d = super().encode(h, budget, random)["code"].clone(), h.shape[1]
        blocks = _blocks(d)
        for row, x in zip(code, h, strict=True):
            halves = row.numpy()[SEED_BYTES : SEED_BYTES + 2 * len(blocks.lengths)].view("<u2")
            rotation = Rotation(d, int(row.numpy()[:SEED_BYTES].view("<i8")[0]))
            decoded = self.decode(Message(code=row[None]), (1, d), budget, "the client")[0]
            z, q = (blocks.split(rotation(vector)).double() for vector in (x.float(), decoded))
            factor = ((z * q).sum(1) / (q * q).sum(1).clamp(min=1e-30)).clamp(0, 1).numpy()
            scale = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32) * factor.astype(np.float32)
            halves[:] = (scale.view(np.uint32) + np.uint32(2**15)) >> np.uint32(16)
        return Message(code=code)


@dataclass(frozen=True)
class Remembered(Compressed):
    """A compressed contribution with error feedback: it sends C(x + e), and e <- x + e - C(x + e)."""

    def encode(self, arrays: Arrays, client: Client) -> Message:
        name = str(self.plain.update)
        x = arrays[name] + client.memory.get("residual", torch.zeros_like(arrays[name]))
        payload = super().encode({**arrays, name: x}, client)
        sent = self.decode(payload, client.sizes, str(client))[name]
        client.new_memory = {**client.memory, "residual": x - sent}
        return payload


@dataclass(frozen=True, kw_only=True)
class WithFeedback(FedCMOO):
    """FedCMOO with error feedback, without sorted entries: their order changes from round to round."""

    def _channel(self, plain: Contribution, stages: Sequence[Stage]) -> Channel:
        if self.update is None or plain.update is None:
            return super()._channel(plain, stages)
        return Channel(Remembered(plain, self.update, self.update_budget), tuple(s.of(plain) for s in stages))


def main(rounds: int, seed: int, clients: int, names: list[str]) -> None:
    rates = {"client_lr": 0.2, "server_lr": 1.0, "batch_size": 32}
    methods = {"float32": FedCMOO(**rates)}
    for budget in (0.015, 0.005):
        methods[f"rotated {budget}"] = FedCMOO(**rates, update=Rotated(), update_budget=budget)
        methods[f"feedback, rotated {budget}"] = WithFeedback(**rates, update=Contracted(), update_budget=budget)
        methods[f"feedback, top-k {budget}"] = WithFeedback(**rates, update=TopK(), update_budget=budget)
    for name in names or methods:
        problem = TwoDigits(clients=clients).build(seed)
        result = fit(problem, methods[name], rounds, clients_per_round=10, seed=seed, engine=Local(), evaluate_every=10)
        scores = {record.round: record.test for record in result.history if record.test is not None}
        found = [
            f"{t}: " + " / ".join(f"{100 * score['accuracy']:.1f}" for score in test.values())
            for t, test in scores.items()
        ]
        print(f"{name}; accuracy in round", *found, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*map(int, sys.argv[1:4]), sys.argv[4:])
