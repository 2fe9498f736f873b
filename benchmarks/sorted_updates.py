"""How much smaller is the error of the rotated code if the entries of updates are sorted by their earlier sizes?

python benchmarks/sorted_updates.py PROBLEM ROUNDS SEED [UPLOAD ...]
    Trains FedCMOO with float32 updates, and in the last round codes the updates of the cohort within the update's part
    of each UPLOAD: the mean of ||x' - x||² / ||x||² over clients, in the order of the model and sorted.
"""

import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from fedcmoo import fit
from fedcmoo.client import Client
from fedcmoo.compression import Rotated, budget_bytes
from fedcmoo.config import RunConfig, preset
from fedcmoo.contributions import Arrays
from fedcmoo.engines import Local
from fedcmoo.messages import Field
from fedcmoo.methods import FedCMOO
from fedcmoo.methods.sorted_entries import ENERGY, SortedEntries
from fedcmoo.rounds import Server
from fedcmoo.sums import Sums


class Recording(SortedEntries):
    """Keeps the updates of a round and the energies of the rounds before it; sorts nothing."""

    updates: list[Tensor] = []  # noqa: RUF012 - of this process
    energy = torch.zeros(0)

    def message(self, server: Server) -> Arrays:
        Recording.updates, Recording.energy = [], server.memory.get(ENERGY, torch.zeros(0))
        return {}

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        if self.update in arrays:
            self.updates.append(arrays[self.update].clone())
        return arrays

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        if self.update in sums.totals:
            super().on_server(sums, fields, server)


def error(x: Tensor, upload: float) -> float:
    method = FedCMOO().within(upload)
    budget, code = budget_bytes(method.update_budget, len(x)), Rotated()
    payload = code.encode(x[None], budget, torch.Generator().manual_seed(0))
    return float((code.decode(payload, (1, len(x)), budget, "") - x).square().sum() / x.square().sum())


def main(problem: str, rounds: int, seed: int, uploads: list[float]) -> None:
    config = RunConfig.from_table(preset(problem, "fedcmoo") | {"seed": seed})
    stages = [Recording("update")]
    fit(config.build(), config.method, rounds, clients_per_round=10, seed=seed, engine=Local(), stages=stages)
    order = Recording.energy.argsort(descending=True)
    for upload in uploads:
        plain, ordered = (
            sum(error(x, upload) for x in same) / len(same)
            for same in (Recording.updates, [x[order] for x in Recording.updates])
        )
        print(f"upload {upload:g}: {plain:.3f} in the model's order, {ordered:.3f} sorted", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [float(text) for text in sys.argv[4:]] or [0.05, 0.02, 0.005])
