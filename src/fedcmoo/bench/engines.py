"""The fixed cost of a round on each engine, measured with clients that have almost nothing to do."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from fedcmoo.config import RunConfig
from fedcmoo.engines import ENGINES
from fedcmoo.history import MASKING, Record
from fedcmoo.optional import MissingExtraError
from fedcmoo.privacy.secure import Secure
from fedcmoo.report.table import Table, count
from fedcmoo.validation import at_least_one

FLOWER = "flower"

CONFIG = RunConfig.from_table(
    {
        "clients_per_round": 10,
        "evaluate_every": 1_000_000,
        "problem": {"name": "two-digits", "clients": 10, "train_pairs": 160, "validation_pairs": 10, "test_pairs": 10},
        "method": {"name": "fedcmoo", "gram": "exact", "local_steps": 1, "batch_size": 8},
    }
)
"""Ten clients of the two-digits problem (34,635 parameters), one local step each, two phases a round."""

WITH_TRIPS = ("local", FLOWER)
"""The engines that support secure sums."""


@dataclass(frozen=True)
class EngineCost:
    """The measurements of one engine.

    Attributes:
        engine: its name.
        start: seconds until the first round is finished.
        round: median seconds of a later round.
        equal: whether the model has the same bits as on the local engine.
        masking: median seconds per round for secure sums, apart from sending the codes.
        bytes: bytes of a round in both directions, as a multiple of those with plain sums.
        remark: the reason if there are no numbers.
    """

    engine: str
    start: float = 0.0
    round: float = 0.0
    equal: bool = False
    masking: float = 0.0
    bytes: float = 1.0
    remark: str = ""


def measure(
    names: Sequence[str] = (),
    rounds: int = 5,
    nodes: int = 3,
    secure: bool = False,
    trips: int = 2,
    say: Callable[[str], None] = print,
) -> list[EngineCost]:
    """Run the same rounds on each engine.

    Args:
        names: the engines to run; by default all, or all that support secure sums.
        rounds: the number of rounds; the first counts as part of the start.
        nodes: the number of Flower's SuperNodes, all on this machine.
        secure: whether to use secure sums.
        trips: trips a round, 1 or 2.
        say: called with progress messages.
    """
    known = WITH_TRIPS if secure else (*ENGINES, FLOWER)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"engines are {', '.join(known)}, but got {unknown[0]!r}")
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2, since the first is part of the start, but got {rounds}")
    at_least_one(nodes=nodes)
    method = replace(CONFIG.method, trips=trips)  # type: ignore[call-arg]
    config = replace(CONFIG, rounds=rounds, method=method, secure=Secure() if secure else None)
    expected, *_ = _on_this_machine("local", config)
    plain = replace(CONFIG, rounds=1).run()
    costs = []
    for name in names or known:
        say(f"measuring {name}")
        try:
            model, history, seconds = _on_flower(config, nodes) if name == FLOWER else _on_this_machine(name, config)
        except MissingExtraError as error:
            costs.append(EngineCost(name, remark=str(error)))
            continue
        each = [sum(record.seconds.values()) for record in history]
        equal = all(torch.equal(model[key], value) for key, value in expected.items())
        masking = median(sum(s for phase, s in r.seconds.items() if phase.endswith(MASKING)) for r in history[1:])
        sent = _sent(history[0]) / _sent(plain.history[0])
        costs.append(EngineCost(name, seconds - sum(each[1:]), median(each[1:]), equal, masking, sent))
    return costs


def _sent(record: Record) -> int:
    return sum(record.up.values()) + sum(record.down.values())


def _on_this_machine(name: str, config: RunConfig) -> tuple[dict[str, Tensor], Sequence[Record], float]:
    """Run once, and return the model's state, the history and the total seconds."""
    start = time.perf_counter()
    result = replace(config, engine=ENGINES[name]()).run()
    return dict(result.model.state_dict()), result.history, time.perf_counter() - start


def _on_flower(config: RunConfig, nodes: int) -> tuple[dict[str, Tensor], Sequence[Record], float]:
    from fedcmoo.flower.demo import run_on_flower  # needs the extra `flower`

    return run_on_flower(config, nodes, lambda line: None, timeout=900)


def table(costs: Sequence[EngineCost], trips: int = 2) -> Table:
    """The costs as a table."""
    rows = [
        [cost.engine, "–", "–", "–", "–", cost.remark]
        if cost.remark
        else [
            cost.engine,
            f"{cost.start:.2f} s",
            f"{cost.round:.3f} s",
            f"{cost.masking:.3f} s",
            f"{cost.bytes:.3f}",
            "yes" if cost.equal else "NO",
        ]
        for cost in costs
    ]
    header = ["engine", "start and first round", "each further round", "of it masking", "bytes", "same bits as local"]
    note = f"ten clients, 34,635 parameters, {count(trips, 'trip')} a round"
    return Table("engines", "Fixed cost of the engines", header, rows, note=note)
