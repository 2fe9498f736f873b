"""Phase one of a client with ResNet-18 and forty objectives, on random images: python benchmarks/phase_one.py BATCH.

Prints processor seconds of a local step, of the gradients of all shared parameters, and of those of the last block.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import cross_entropy

from fedcmoo import Objective, Problem
from fedcmoo.models.images import ResNet18
from fedcmoo.optimizers import SGD
from fedcmoo.worker import Worker

M = 40


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main(batch: int) -> None:
    torch.set_num_threads(1)
    data = (torch.rand(batch, 3, 32, 32), [torch.randint(2, (batch,)) for _ in range(M)])
    model, objectives = ResNet18(), [Objective(f"attribute {k}", cross_entropy) for k in range(M)]

    def measure(shared: Sequence[str]) -> None:
        worker = Worker(Problem(model, objectives, [data], shared=shared), {}, seed=0)
        client = worker.client(worker.model.state, round=0, i=0)
        step = seconds(lambda: client.train([1 / M] * M, 1, 0.1, SGD(), None))
        gradients = seconds(lambda: client.shared_jacobian(None))
        print(f"{shared}: a local step {step:.2f} s, {M} gradients {gradients:.2f} s", flush=True)

    measure(["encoder"])
    measure(["encoder.10"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
