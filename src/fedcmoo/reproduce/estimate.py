"""Estimates of the time that runs will take."""

import contextlib
import json
from typing import Any

from fedcmoo.config import RunConfig
from fedcmoo.run import CONFIG, RESULT
from fedcmoo.runs import Runs
from fedcmoo.settings import SettingsError, flatten, from_table, read_toml

ROUGH = {
    "two-digits": (0.004, 2),
    "multimnist": (0.02, 2),
    "mnist-fmnist": (0.02, 2),
    "cifar10-mnist": (0.25, 2),
    "celeba": (4.0, 40),
    "celeba5": (4.0, 5),
    "qm9": (0.5, 11),
    "valleys": (0.05, 2),
}
"""By problem, seconds of one local step with a batch of 128 on one core, for estimates without any measurement, and the
number of objectives."""


def estimate(config: RunConfig, runs: Runs, cores: int) -> float:
    """Estimate the remaining seconds of a run, from similar finished runs if any, else roughly."""
    if runs.find(config) is not None:
        return 0.0
    left = config.rounds - runs.rounds_done(config)
    return left * (_measured(config, runs) or _guessed(config, cores))


def _measured(config: RunConfig, runs: Runs) -> float | None:
    """Seconds per round of a finished run with the same work per round."""
    wanted = _work(config.to_table())
    for file in runs.files(f"*{wanted['problem.name']}-*/{RESULT}"):
        settings = file.parent / CONFIG
        with contextlib.suppress(SettingsError):  # made with settings that no longer exist
            if settings.exists() and _work(from_table(type(config), read_toml(settings)).to_table()) == wanted:
                result = json.loads(file.read_text())
                return float(result["seconds"] / result["rounds"])
    return None


def _work(table: Any) -> dict[str, Any]:
    names = ["problem.name", "clients_per_round", "every", "budgets"]
    own = ("name", "local_steps", "batch_size", "measure_every", "gram_every", "gram_batch_size", "drift.name")
    names += [f"method.{name}" for name in own]
    flat = flatten(table)
    return {name: flat.get(name) for name in names}


def _guessed(config: RunConfig, cores: int) -> float:
    """A rough estimate of a round's seconds on all cores: the clients' gradients."""
    seconds, M = ROUGH.get(config.problem.name, (0.02, 2))
    batch = (config.method.batch_size or 128) / 128
    return config.method.gradients(M) * seconds * batch * (config.clients_per_round or 10) / cores
