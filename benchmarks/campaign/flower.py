"""A run with faulty clients on a real Flower federation: SuperLink, SuperNodes and apps in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
from torch import Tensor

from campaign.memory import private_bytes
from fedcmoo.config import RunConfig
from fedcmoo.history import Record, read_history
from fedcmoo.run import HISTORY
from fedcmoo.run_folder import MODEL

NODES = 2

FAULTY = """
from campaign.problem import FaultyClients

app = client_app(problem, method, stages=[FaultyClients()])
"""

TELL = """
import os
from pathlib import Path

Path({file!r}).write_text(str(os.getpid()))
"""


def run_on_flower(
    folder: Path, config: RunConfig, watch: Callable[[int], None]
) -> tuple[list[Record], dict[str, Tensor]]:
    """The history and the model of a run on loopback; after each round, `watch` gets the memory of the server app."""
    from fedcmoo.flower.demo import run_app
    from fedcmoo.flower.deploy import Deployment
    from fedcmoo.flower.template import write_app

    app, out, pid = folder / "app", folder / "out", folder / "pid"
    write_app(app, config)
    for name, more in (("client_app.py", FAULTY), ("server_app.py", TELL.format(file=str(pid)))):
        file = app / "federation" / name
        file.write_text(file.read_text() + more)

    def after_round(_: str) -> None:
        watch(private_bytes(int(pid.read_text())))

    # The apps import this package too, in processes of their own.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with Deployment(folder, NODES) as deployment:
        run_app(deployment, app, {"folder": str(out)}, out, after_round, timeout=60.0 * (2 + config.rounds))
    return read_history(out / HISTORY), safetensors.torch.load_file(out / MODEL)
