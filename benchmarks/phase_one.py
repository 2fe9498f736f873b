"""Phase one of clients with forty objectives: what it costs, and whether training needs all of it.

python benchmarks/phase_one.py time BATCH
    ResNet-18 on random images: processor seconds of a local step, of the gradients of all shared parameters, and of
    those of the last block.
python benchmarks/phase_one.py train ROUNDS SEED RULE [SETTING ...]
    Pairs of MNIST digits with forty yes-or-no questions: scores on the test pairs after training with each setting, and
    a client's processor seconds in a round. RULE is a weighting rule, such as at-least-equal.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedcmoo import FedCMOO, Objective, Problem, accuracy, fit
from fedcmoo.bench.timed import Clock, T, Timed
from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Channels, Contribution, Stage
from fedcmoo.data.images import ImageData
from fedcmoo.engines import Local
from fedcmoo.experiments.pairs import MultiMNIST
from fedcmoo.gram import Exact
from fedcmoo.gram.base import Estimate
from fedcmoo.gram.exact import Jacobian
from fedcmoo.messages import Message
from fedcmoo.models.images import LeNet, ResNet18
from fedcmoo.optimizers import SGD
from fedcmoo.ownership import Share
from fedcmoo.randomness import numpy_generator, seeded
from fedcmoo.rounds import Server
from fedcmoo.worker import Worker

M, COHORT, BATCH = 40, 10, 32


def chosen_half(seed: int, round: int) -> tuple[bool, ...]:
    """Which objectives are in the random half of a round, the same for all clients."""
    chosen = numpy_generator(seed, round, "half").permutation(M) < M // 2
    return tuple(bool(is_chosen) for is_chosen in chosen)


@dataclass(frozen=True)
class HalfJacobian(Jacobian):
    """h_i with zeros for the other half of the objectives, whose gradients are not computed."""

    def compute(self, client: Client, message: Message) -> Arrays:
        own, client.share = client.share, Share(client.weight, chosen_half(client.seed, client.round))
        arrays = super().compute(client, message)
        client.share = own
        return arrays


class Half(Exact):
    """The exact G of a random half of the objectives, another one in every round; the others keep their weights."""

    asks_cohort: ClassVar[bool] = False  # so that the first local step does not reuse half a Jacobian

    def contribution(self, batch_size: int | None) -> Contribution:
        return HalfJacobian(batch_size)

    def estimate(self, server: Server, *others: str) -> Estimate:
        G, sums = yield from super().estimate(server, *others)
        other_half = ~np.array(chosen_half(server.seed, server.round))
        G[other_half] = G[:, other_half] = np.nan
        return G, sums


SETTINGS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "full": ({}, "encoder"),
    "gram_every=4": ({"gram_every": 4}, "encoder"),
    "gram_batch_size=8": ({"gram_batch_size": BATCH // 4}, "encoder"),
    "last-layer": ({}, "encoder.7"),
    "random-half": ({"gram": Half()}, "encoder"),
}
"""The settings of FedCMOO, and the parameters that G covers."""


class ProcessorClock(Clock):
    """A clock of processor seconds."""

    def time(self, work: Callable[[], T], timer: Callable[[], float] = time.process_time) -> T:
        return super().time(work, timer)


@dataclass(frozen=True, kw_only=True)
class Clocked(FedCMOO):
    """FedCMOO with a clock of phase one and a clock of local training."""

    phase_one: Clock = field(default_factory=ProcessorClock)
    training_clock: Clock = field(default_factory=ProcessorClock)

    def channels(self, stages: Sequence[Stage] = ()) -> Channels:
        return {
            name: replace(
                channel,
                contribution=Timed(
                    channel.contribution, self.training_clock if name.startswith("train") else self.phase_one
                ),
            )
            for name, channel in super().channels(stages).items()
        }


def questions(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Forty yes-or-no questions about the left digit a and the right digit b, and their answers."""
    asked = {}
    for side, digit in (("left", a), ("right", b)):
        asked |= {f"{side} is {k}": digit == k for k in range(10)}
        asked |= {
            f"{side} is odd": digit % 2 == 1,
            f"{side} is at least five": digit >= 5,
            f"{side} has a loop": torch.isin(digit, torch.tensor([0, 6, 8, 9])),
            f"{side} has straight lines only": torch.isin(digit, torch.tensor([1, 4, 7])),
            f"{side} is prime": torch.isin(digit, torch.tensor([2, 3, 5, 7])),
            f"{side} is divisible by three": digit % 3 == 0,
        }
    return asked | {
        "the sum is at least ten": a + b >= 10,
        "the sum is odd": (a + b) % 2 == 1,
        "the product is at least twenty": a * b >= 20,
        "left is larger than right": a > b,
        "the digits are equal": a == b,
        "the digits differ by at most two": (a - b).abs() <= 2,
        "both are odd": (a % 2 == 1) & (b % 2 == 1),
        "both are at least five": (a >= 5) & (b >= 5),
    }


def forty_questions(seed: int, shared: str) -> Problem:
    """MultiMNIST's pairs and clients; the model is its encoder with forty linear heads."""
    pairs = MultiMNIST(samples_per_client=600, rotation=0.0)
    (train, _, test), partition = pairs.federate(seed)

    def asked(data: ImageData) -> ImageData:
        answers = [answer.long() for answer in questions(*data.targets).values()]
        return ImageData(data.images, answers, pairs.mean, pairs.std)

    with seeded(torch.device("cpu"), seed, "forty questions"):
        model = LeNet(dropout=0.0)
        model.decoders = nn.ModuleList(nn.Linear(50, 2) for _ in range(M))
    objectives = [Objective(name, cross_entropy, metrics=[accuracy]) for name in questions(*test.targets)]
    clients = pairs.client_data(asked(train), partition, seed)
    return Problem(model, objectives, clients, test=asked(test), shared=[shared], name="forty questions")


def train(rounds: int, seed: int, rule: str, settings: Sequence[str]) -> None:
    """Train with each of the settings."""
    print("seed, rule, setting: mean accuracy, mean loss, worst loss; processor seconds of phase one, of a client")
    for name in settings or SETTINGS:
        options, shared = SETTINGS[name]
        common = {"client_lr": 0.5, "server_lr": 1.0, "batch_size": BATCH, "weights": rule}
        method = Clocked(**common, **options)  # type: ignore[arg-type]
        problem = forty_questions(seed, shared)
        result = fit(problem, method, rounds, clients_per_round=COHORT, seed=seed, engine=Local(), evaluate_every=20)
        phase_one, training = (clock.seconds / rounds / COHORT for clock in (method.phase_one, method.training_clock))
        for record in result.history:
            if record.test is not None:
                losses, right = ([s[key] for s in record.test.values()] for key in ("loss", "accuracy"))
                print(
                    f"{seed}, {rule}, {name}, round {record.round}: {100 * sum(right) / M:.2f} %, "
                    f"{sum(losses) / M:.4f}, {max(losses):.3f}; {phase_one:.3f} s, {phase_one + training:.3f} s",
                    flush=True,
                )


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(batch: int) -> None:
    """Time phase one of one client."""
    data = (torch.rand(batch, 3, 32, 32), [torch.randint(2, (batch,)) for _ in range(M)])
    model, objectives = ResNet18(), [Objective(f"attribute {k}", cross_entropy) for k in range(M)]
    for shared in ("encoder", "encoder.10"):
        worker = Worker(Problem(model, objectives, [data], shared=[shared]), {}, seed=0)
        client = worker.client(worker.model.state, round=0, i=0)
        step = seconds(lambda client=client: client.train([1 / M] * M, 1, 0.1, SGD(), None))
        gradients = seconds(lambda client=client: client.shared_jacobian(None))
        print(f"{shared}: a local step {step:.2f} s, {M} gradients {gradients:.2f} s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "time":
        measure(int(sys.argv[2]))
    else:
        train(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
