"""Memory of a round with ResNet-18 and forty objectives, on random images: python benchmarks/faces.py CLIENTS BATCH."""

import sys
import threading
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from fedcmoo import FedCMOO, Objective, Problem, fit
from fedcmoo.engines import Pool
from fedcmoo.models.images import ResNet18


def proportional_bytes() -> int:
    """Memory of this process and its children (Linux); what several share counts in parts."""
    children = Path("/proc/self/task").glob("*/children")
    ids = ["self", *(child for file in children for child in file.read_text().split())]
    lines = [line for i in ids for line in Path(f"/proc/{i}/smaps_rollup").read_text().splitlines()]
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main(clients: int, batch: int) -> None:
    g = torch.Generator().manual_seed(0)
    data = [
        (torch.rand(batch, 3, 32, 32, generator=g), [torch.randint(2, (batch,), generator=g) for _ in range(40)])
        for _ in range(clients)
    ]
    problem = Problem(ResNet18(), [Objective(f"attribute {k}", cross_entropy) for k in range(40)], data)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            peak[0] = max(peak[0], proportional_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        method = FedCMOO(batch_size=batch, local_steps=2, client_lr=0.01)
        result = fit(problem, method, 1, clients_per_round=clients, engine=Pool(workers=2))
    finally:
        done.set()
        watcher.join()
    print(f"{clients} clients, batch {batch}: {peak[0] / 1e9:.1f} GB, {result.seconds:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
