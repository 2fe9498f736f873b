"""The accuracy cost of differential privacy, for several budgets and numbers of clients."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fedcmoo.experiments.pairs import MultiMNIST
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.gram import Sketch
from fedcmoo.methods import FedCMOO
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.report.table import Table
from fedcmoo.settings import SettingsError
from fedcmoo.training import fit

COHORT = 0.1
"""The share of clients in a cohort."""

METHOD = FedCMOO(client_lr=0.2, local_steps=5, batch_size=32, gram=Sketch(correction=False), gram_every=5)
"""The method of all runs; G is estimated in every fifth round."""

PRIVATE_PROBLEMS: dict[str, type[TwoDigits | MultiMNIST]] = {p.name: p for p in (TwoDigits, MultiMNIST)}
"""The problems that can be measured, by name: their pairs of images are distributed over all clients."""

CLIP, CLIP_GRADIENTS = 0.5, 2.0


@dataclass(frozen=True)
class PrivacyCost:
    """The measurements of one run.

    Attributes:
        clients, cohort: the number of clients, and the expected size of the cohort.
        epsilon: the budget; None for a run with clipping but without noise.
        noise: z, the noise of one sum as a multiple of the bound on one client.
        noise_in_mean: the norm of the noise in the mean update, as a multiple of the largest norm that the mean can
            have without noise: z sqrt(d) / n.
        accuracy: the test accuracy, averaged over both digits.
    """

    clients: int
    cohort: int
    epsilon: float | None
    noise: float
    noise_in_mean: float
    accuracy: float


def measure(
    problem: str, clients: Sequence[int], epsilons: Sequence[float | None], rounds: int, note: Callable[[str], None]
) -> list[PrivacyCost]:
    """One run for each number of clients and each budget."""
    if problem not in PRIVATE_PROBLEMS:
        raise SettingsError(f"the problem must be one of {', '.join(PRIVATE_PROBLEMS)}, but got {problem!r}")
    return [_measure(problem, N, epsilon, rounds, note) for N in clients for epsilon in epsilons]


def stage(epsilon: float | None) -> Clip | DifferentialPrivacy:
    """Clipping, with noise for this budget; None for no noise."""
    if epsilon is None:
        return Clip(CLIP, CLIP_GRADIENTS)
    return DifferentialPrivacy(epsilon=epsilon, clip=CLIP, clip_gradients=CLIP_GRADIENTS)


def _measure(problem: str, N: int, epsilon: float | None, rounds: int, note: Callable[[str], None]) -> PrivacyCost:
    n = max(1, round(COHORT * N))
    federation = PRIVATE_PROBLEMS[problem](clients=N).build(seed=0)
    private = PrivateRun.of([stage(epsilon)], METHOD.releases, federation, n, rounds)
    z = 0.0 if private is None else private.multiplier
    result = fit(federation, METHOD, rounds, clients_per_round=n, evaluate_every=rounds, stages=[stage(epsilon)])
    d = sum(p.numel() for p in result.model.parameters())
    cost = PrivacyCost(N, n, epsilon, z, z * math.sqrt(d) / n, result.mean("accuracy"))
    note(f"{cost}")
    return cost


def table(costs: Sequence[PrivacyCost], rounds: int) -> Table:
    """A table with a row for each run."""
    rows = [
        [
            f"{c.clients:,}",
            f"{c.cohort:,}",
            "no noise" if c.epsilon is None else f"{c.epsilon:g}",
            f"{c.noise:.2f}",
            f"{c.noise_in_mean:.2f}",
            f"{c.accuracy:.1%}",
        ]
        for c in costs
    ]
    header = ["clients", "cohort", "epsilon", "noise", "noise in the mean", "accuracy"]
    note = f"{rounds} rounds, delta = N^-1.1, updates clipped to {CLIP} and sketches to {CLIP_GRADIENTS}, one run each"
    return Table("privacy", "Accuracy with differential privacy", header, rows, [asdict(c) for c in costs], note)
