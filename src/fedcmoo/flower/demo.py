"""Demo: a run on a Flower federation on this machine, compared bit for bit with the same run in one process."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fedcmoo.config import RunConfig
from fedcmoo.engines.local import Local
from fedcmoo.flower.deploy import Deployment, DeploymentError
from fedcmoo.flower.keys import write_keys
from fedcmoo.flower.server import describe
from fedcmoo.flower.template import write_app
from fedcmoo.history import Record, read_history
from fedcmoo.result import Result
from fedcmoo.validation import at_least_one

DEMO: Mapping[str, object] = {
    "rounds": 3,
    "clients_per_round": 6,
    "evaluate_every": 3,
    "problem": {"name": "two-digits", "clients": 6, "train_pairs": 1200, "validation_pairs": 200, "test_pairs": 200},
    "method": {"name": "fedcmoo", "client_lr": 0.2, "local_steps": 5, "batch_size": 32},
}
"""A configuration so small that a round takes hardly more than Flower's fixed cost."""


@dataclass(frozen=True)
class DemoResult:
    """The outcome of a demo.

    Attributes:
        history: the history of the run on Flower.
        local: the result of the same run in one process.
        equal: whether models and histories agree in every bit.
        seconds: from the start of the SuperLink to the end of the run.
    """

    history: list[Record]
    local: Result
    equal: bool
    seconds: float


def demo(config: RunConfig, nodes: int = 3, say: Callable[[str], None] = print, timeout: float = 900.0) -> DemoResult:
    """Run a configuration on a federation on loopback and in this process.

    Args:
        config: what to run; its engine does not matter.
        nodes: the number of SuperNodes; clients are distributed over them in turn.
        say: called with progress messages.
        timeout: seconds after which the run on Flower is aborted.
    """
    at_least_one(nodes=nodes)
    say(f"starting a SuperLink and {nodes} SuperNodes on loopback, with TLS and a key for each node")
    model, history, seconds = run_on_flower(config, nodes, say, timeout, with_keys=True)
    say("all processes have ended; the same run in this process")
    local = replace(config, engine=Local()).run()
    same_model = all(torch.equal(model[key], value) for key, value in local.model.state_dict().items())
    same_history = [r.without_time() for r in history] == [r.without_time() for r in local.history]
    return DemoResult(history, local, same_model and same_history, seconds)


def run_on_flower(
    config: RunConfig, nodes: int, say: Callable[[str], None], timeout: float, with_keys: bool = False
) -> tuple[dict[str, Tensor], list[Record], float]:
    """Run a configuration on a federation on loopback, with TLS and node authentication or without; returns the model's
    state, the history, and the seconds from the start of the federation to its end."""
    with tempfile.TemporaryDirectory(prefix="fedcmoo-flower-") as name:
        folder = Path(name)
        app, out, keys = folder / "app", folder / "out", folder / "keys" if with_keys else None
        write_app(app, config)
        start = time.monotonic()
        if keys is not None:
            write_keys(keys, nodes, ["localhost"])
        with Deployment(folder, nodes, keys=keys) as deployment:
            run_app(deployment, app, {"folder": str(out)}, out, say, timeout)
        seconds = time.monotonic() - start
        return safetensors.torch.load_file(out / "model.safetensors"), read_history(out / "history.jsonl"), seconds


def run_app(
    deployment: Deployment,
    app: Path,
    config: Mapping[str, object],
    out: Path,
    say: Callable[[str], None],
    timeout: float,
) -> None:
    """Run an app whose folder on the server is `out` until the run has ended, reporting each finished round."""
    history = out / "history.jsonl"
    done = size = 0
    run = deployment.run(app, config)
    until = time.monotonic() + timeout
    while True:
        ended = run.poll() is not None
        if history.exists() and (grown := history.stat().st_size) != size:
            records, size = read_history(history), grown
            for record in records[done:]:
                say(describe(record))
            done = len(records)
        if ended or time.monotonic() > until:
            break
        time.sleep(0.2)
    if not (out / "result.json").exists():
        what = "did not succeed" if ended else f"took longer than {timeout:.0f} seconds"
        raise DeploymentError(f"the run on Flower {what}; its log:\n{deployment.log('run')}")
