"""Template of a Flower app for a run's configuration: two short files, and one that defines the problem."""

from pathlib import Path

from fedcmoo.acceptance import Acceptance
from fedcmoo.config import RunConfig
from fedcmoo.failures import Skip
from fedcmoo.flower.server import RunSettings
from fedcmoo.settings import SettingsError, to_table, write_toml

PACKAGE = "federation"

CLIENT = '''\
"""The app of every node."""

from {package}.task import CONFIG, method, problem

from fedcmoo.flower import client_app

app = client_app(problem, method, stages=CONFIG.stages)
'''

SERVER = '''\
"""The app of the server."""

from {package}.task import CONFIG, method, problem

from fedcmoo.flower import server_app

app = server_app(problem, method, stages=CONFIG.stages)
'''

TASK = '''\
"""The problem and the method, the same on all sides: those of run.toml. Replace them with your own."""

from pathlib import Path

from flwr.app import Context

from fedcmoo import Problem
from fedcmoo.config import RunConfig, read_toml
from fedcmoo.methods import Method

CONFIG = RunConfig.from_table(read_toml(Path(__file__).with_name("run.toml")))


def problem(context: Context) -> Problem:
    """The problem. `context.run_config` is the same everywhere; `context.node_config` is the node's own, as given to
    its SuperNode, and empty on the server."""
    data = context.node_config.get("data", CONFIG.data)
    return CONFIG.problem.build(int(context.run_config["seed"]), None if data is None else Path(str(data)))


def method(context: Context) -> Method:
    """The method, the same everywhere."""
    return CONFIG.method
'''

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{package}"
version = "1.0.0"
description = "Federated multi-objective training with fedcmoo"
license = "Apache-2.0"
# fedcmoo and its extra `flower` must be installed on the server and all nodes; Flower carries only this folder.
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "you"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# What `flwr run --run-config` may change; "none" stands for no value.
[tool.flwr.app.config]
{config}"""

README = """\
# {package}: federated training with fedcmoo on Flower

`{package}/task.py` defines the problem and the method; the other two files need no change.
On the server and on every node, install fedcmoo with its extra `flower`: `pip install ".[flower]"` in a clone of it.

On the server, make certificates, a key for each node and the configuration of a proxy; the command prints how
the server, the operator and the nodes are started with them:

```
fedcmoo flower keys keys --nodes 3 --host SERVER
```

Give each site `ca.crt` and its own `node-N`. The SuperLink stays on loopback, since whoever reaches it can start
runs; sites reach the proxy, which forwards only the nodes' interface. To try the app on one machine without any of
that, use `fedcmoo flower demo`.

Then the operator starts a run:

```
flwr run . federation --stream --run-config 'rounds=20 folder="/somewhere/on/the/server"'
```

To continue after a crash, run the same command with `resume=true` added.
"""


def write_app(folder: Path, config: RunConfig) -> list[Path]:
    """Write an app for a run's configuration to a new or empty folder; returns the files."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"the folder of a new app must be empty, but {folder} is not")
    names = {"package": PACKAGE, "config": run_config(config)}
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{PACKAGE}/__init__.py": '"""A federation of fedcmoo on Flower."""\n',
        f"{PACKAGE}/task.py": TASK,
        f"{PACKAGE}/client_app.py": CLIENT,
        f"{PACKAGE}/server_app.py": SERVER,
    }
    (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text.format(**names) if "{" in text else text)
    (folder / PACKAGE / "run.toml").write_text(write_toml(config.to_table()))
    return [folder / name for name in (*files, f"{PACKAGE}/run.toml")]


def run_config(config: RunConfig) -> str:
    """The settings of a run in the format of Flower's run config, one per line. A federation always continues without
    clients that fail."""
    if config.acceptance != Acceptance(max_norm=config.acceptance.max_norm):
        raise SettingsError(f"an app can set only acceptance.max_norm, but got {config.acceptance}; leave out the rest")
    rule = config.on_failure if isinstance(config.on_failure, Skip) else Skip()
    settings = RunSettings(
        rounds=config.rounds,
        clients_per_round=config.clients_per_round,
        seed=config.seed,
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.checkpoint_every,
        download=config.download,
        max_norm=config.acceptance.max_norm,
        min_replies=rule.min_replies,
        pause=rule.pause,
    )
    table = {"clients_per_round": "none", "folder": "none"} | to_table(settings)
    return write_toml({key.replace("_", "-"): value for key, value in table.items()})
