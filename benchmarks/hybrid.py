"""Does it pay to send a gradient's largest entries as they are, and only the rest as a sketch?

python benchmarks/hybrid.py [PROBLEM [ROUNDS]]: Jacobians of ten clients after some rounds of FedCMOO; nRMSE of G in
percent, mean over three cohorts and four seeds, at equal bytes. A share of the upload goes to the largest entries of
each row, eight bits each and their places as the smaller of a bitmap and a list; the sketch of the rest has four bits
an entry, as the default estimator's.
"""

import sys
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from fedcmoo.cli.resolving import resolve
from fedcmoo.compression import CountSketch
from fedcmoo.compression.quantizer import quantize, quantized_length
from fedcmoo.gram.base import inner
from fedcmoo.randomness import generator
from fedcmoo.training import fit
from fedcmoo.worker import Worker

COHORT, BITS = 10, 4


def estimate(cohort: list[Tensor], largest: int, k: int, seed: int) -> Tensor:
    """n² G, from h ≈ q + S^T y with q the largest entries and y = S (h - q); each client's own term is exact."""
    M, d = cohort[0].shape
    S = CountSketch(d, k, seed)
    q_sum, y_sum, correction = torch.zeros(M, d), torch.zeros(M, k), torch.zeros(M, M, dtype=torch.float64)
    for i, h in enumerate(cohort):
        q = torch.zeros_like(h)
        if largest:
            places = h.abs().topk(largest, dim=1).indices
            values = h.gather(1, places)
            quantize(values, 8, generator(seed, i, "values"), rounded=values)
            q.scatter_(1, places, values)
        y = S(h - q)
        quantize(y, BITS, generator(seed, i, "sketch"), rounded=y)
        correction += inner(h, h) - product_of(q, y, S)
        q_sum, y_sum = q_sum + q, y_sum + y
    return product_of(q_sum, y_sum, S) + correction


def product_of(q: Tensor, y: Tensor, S: CountSketch) -> Tensor:
    """(q + S^T y)^T (q + S^T y), estimated from the sketch wherever y takes part."""
    both = S(q) + y
    return inner(q, q) - inner(S(q), S(q)) + inner(both, both)


def sizes(row: int, share: float, d: int) -> tuple[int, int]:
    """How many largest entries, and what length of the sketch, a row of so many bytes holds."""
    part = int(row * share)
    bitmap, places = (part - d / 8) / (1 + 4 / 256), part / (3 + 4 / 256)  # two bytes say a place
    return min(d, max(0, int(max(bitmap, places)))), min(d, quantized_length(row - part, BITS))


def main(problem: str, rounds: int) -> None:
    config = resolve(problem, "fedcmoo")
    federation = config.build()
    result = fit(federation, config.method, rounds, clients_per_round=config.clients_per_round, evaluate_every=rounds)
    worker = Worker(replace(federation, model=result.model), {}, seed=1)
    clients = [worker.client(worker.model.state, round=0, i=i) for i in range(3 * COHORT)]
    jacobians = [client.jacobian(config.method.batch_size)[:, : worker.sizes.d_shared].clone() for client in clients]
    cohorts = [jacobians[start : start + COHORT] for start in range(0, len(jacobians), COHORT)]
    shares = (0.0, 0.2, 0.4, 0.6)
    print(f"{problem}, {rounds} rounds; upload / d, then errors with these shares for the largest entries:", *shares)
    for budget in (0.3, 0.1, 0.03, 0.01):
        M, d = cohorts[0][0].shape
        errors = []
        for share in shares:
            largest, k = sizes(int(4 * d * budget) // M, share, d)
            found = []
            for cohort, seed in product(cohorts, range(4)):
                exact = inner(sum(cohort), sum(cohort))
                found.append((estimate(cohort, largest, k, seed) - exact).norm() / exact.norm())
            errors.append(f"{100 * torch.stack(found).mean():.3f}")
        print(budget, *errors)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] if len(sys.argv) > 1 else "two-digits", int(sys.argv[2]) if len(sys.argv) > 2 else 30)
