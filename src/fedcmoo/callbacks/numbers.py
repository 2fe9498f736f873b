"""The numbers of a round by name, for loggers."""

from __future__ import annotations

from fedcmoo.client_scores import STATISTICS, statistic
from fedcmoo.history import Record


def numbers(record: Record) -> dict[str, float]:
    """Losses and metrics by split and objective, weights, traffic, seconds and the method's notes.

    >>> numbers(Record(1, [0], {"left": 1.0}, up={"train": 8}))["traffic/up"]
    8
    """
    found: dict[str, float] = {}
    for split, scores in (("test", record.test), ("validation", record.validation)):
        for objective, values in (scores or {}).items():
            found |= {f"{split}/{metric}/{objective}": value for metric, value in values.items()}
    for name in STATISTICS if record.client_test else ():
        for objective, values in statistic(record.client_test or {}, name).items():
            found |= {f"client_test/{metric}/{objective}/{name}": value for metric, value in values.items()}
    found |= {f"weights/{objective}": weight for objective, weight in record.weights.items()}
    if record.grad_norm_sq is not None:
        found["grad_norm_sq"] = record.grad_norm_sq
    found |= {f"notes/{name}": value for name, value in record.notes.items()}
    found["traffic/up"], found["traffic/down"] = sum(record.up.values()), sum(record.down.values())
    found["seconds"] = sum(record.seconds.values())
    return found
