"""Measures how much sorting the entries of updates by their earlier sizes reduces the error of the rotated code.

python benchmarks/sorted_updates.py PROBLEM ROUNDS SEED [UPLOAD ...]
    Trains FedCMOO with each UPLOAD (by default 0.05, 0.02 and 0.01), with sorted and with unsorted entries, and prints
    the mean of ||x' - x||² / ||x||² over the clients of the last ten rounds, where x is a client's update and x' the
    decoded update.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcmoo import fit
from fedcmoo.client import Client
from fedcmoo.compression import Rotated
from fedcmoo.config import RunConfig, preset
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.engines import Local
from fedcmoo.messages import Field


class Unsorted(Rotated):
    """The rotated code without sorting: entries stay in the order of the model's parameters."""

    adapts_to_blocks = False


@dataclass(frozen=True)
class Errors(Stage):
    """Compares what clients send with what the server decodes, in one process."""

    found: list[float] = field(default_factory=list)
    sent: list[Tensor] = field(default_factory=list)

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        if "update" in arrays:
            self.sent.append(arrays["update"].clone())
        return arrays

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        if "update" in arrays:
            x = self.sent.pop()
            self.found.append(float((arrays["update"] - x).square().sum() / x.square().sum()))
        return arrays


def main(problem: str, rounds: int, seed: int, uploads: list[float]) -> None:
    config = RunConfig.from_table(preset(problem, "fedcmoo") | {"seed": seed})
    built, n = config.build(), config.clients_per_round or 10
    for upload in uploads:
        method = config.method.within(upload)
        means = []
        for update in (Unsorted(), Rotated()):
            errors = Errors()
            same = replace(method, update=update)
            fit(built, same, rounds, clients_per_round=n, seed=seed, engine=Local(), stages=[errors])
            means.append(np.mean(errors.found[-10 * n :]))
        print(f"upload {upload:g}: {means[0]:.2f} unsorted, {means[1]:.2f} sorted", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [float(text) for text in sys.argv[4:]] or [0.05, 0.02, 0.01])
