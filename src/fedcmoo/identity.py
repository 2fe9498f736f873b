"""The identity of a run (problem, method and numerics, as texts by name), and the differences between two runs."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcmoo.data.base import Data
from fedcmoo.data.remote import NotHereError
from fedcmoo.engines.base import Engine, numerics
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem

RunIdentity = dict[str, str]
"""The texts that identify a run, by name, such as "method.client_lr" or "client 3"."""

SHOWN = 8
"""The maximum number of differences that are shown; further ones are counted."""

SAMPLES = 8
"""The number of samples of each part of the data whose checksum is part of a run's identity."""


def identity(
    problem: Problem,
    method: Method,
    engine: Engine,
    clients_per_round: int,
    seed: int,
    others: Mapping[str, Any] = MappingProxyType({}),
) -> RunIdentity:
    """The identity of a run: everything that changes its results; `others` are further settings by name.

    Clients' sizes are included if the clients are in a list or tuple; other sequences may load them lazily.
    """
    found = {
        "problem": problem.name,
        "objectives": ", ".join(objective.name for objective in problem.objectives),
        "clients": str(problem.N),
        "clients_per_round": str(clients_per_round),
        "seed": str(seed),
        "parameters": str(sum(p.numel() for p in problem.model.parameters() if p.requires_grad)),
        "shared": "all" if problem.shared_prefixes is None else ", ".join(problem.shared_prefixes),
        "private": ", ".join(problem.private_prefixes),
        "channels_last": str(problem.channels_last),
        "owns": "by labels" if problem.owns is None else str([sorted(names) for names in problem.owns]),
        "weights": str(problem.weights),
        "buffers": str(sum(b.numel() for b in problem.model.buffers())),
        **{f"engine.{name}": str(value) for name, value in numerics(engine).items()},
        **dict(_flat("method", method)),
    }
    for name, settings in others.items():
        found |= dict(_flat(name, settings))
    found |= {f"model.{name}": str(list(p.shape)) for name, p in problem.model.named_parameters() if p.requires_grad}
    if isinstance(problem.clients, (list, tuple)):
        found |= {f"client {i}": f"{len(problem.client(i))} samples" for i in range(problem.N)}
    parts = {"client 0": _first_client(problem), "test": problem.test, "validation": problem.validation}
    return found | {f"{part} data": _content(data) for part, data in parts.items() if data is not None}


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """The entries that both runs have but that differ, one per line; empty if they are the same run.

    >>> print(differences({"seed": "0", "method.client_lr": "0.3"}, {"seed": "0", "method.client_lr": "0.1"}))
      method.client_lr: 0.3 there, 0.1 here
    """
    different = [name for name in there if name in here and there[name] != here[name]]
    lines = [f"  {name}: {there[name]} there, {here[name]} here" for name in different]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"  and {len(lines) - SHOWN} more"]
    return "\n".join(lines)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A settings object as its class and settings, including nested ones."""
    if isinstance(value, np.generic):  # it has the same results as a Python number
        value = value.item()
    if not is_dataclass(value):
        # Functions and objects have other addresses in another process.
        yield name, re.sub(r" at 0x[0-9a-f]+", "", repr(value))
        return
    yield name, type(value).__name__
    for field in fields(value):
        yield from _flat(f"{name}.{field.name}", getattr(value, field.name))


def _first_client(problem: Problem) -> Data | None:
    try:
        return problem.client(0)
    except NotHereError:
        return None


def _content(data: Data) -> str:
    """The number of samples and a checksum of the first ones, unless they differ each time they are read."""
    index = torch.arange(min(SAMPLES, len(data)))
    sums = {hashlib.sha256(b"".join(_bytes(data.batch(index)))).hexdigest()[:12] for _ in range(2)}
    return f"{len(data)} samples" + (f" (checksum {sums.pop()})" if len(sums) == 1 else "")


def _bytes(value: Any) -> Iterator[bytes]:
    """The bytes of all tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _bytes(part)
