"""The Flower client app, which replies for the clients whose data its node holds."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from fedcmoo.contributions import Stage
from fedcmoo.engines.remote.node import Node, reason
from fedcmoo.flower.transport import from_records, to_records
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem

log = logging.getLogger(__name__)

Mod = Callable[[FlowerMessage, Context, Callable[[FlowerMessage, Context], FlowerMessage]], FlowerMessage]
"""Flower's hook around a message: (message, context, what comes next) -> reply."""

MakeProblem = Callable[[Context], Problem]
"""The problem of a run, from Flower's context: `run_config` is the same everywhere, `node_config` is per node."""

MakeMethod = Callable[[Context], Method]
"""The method of a run, from Flower's context; it must be the same on all nodes and the server."""


class SetupError(RuntimeError):
    """A node could not create its problem; Flower sends only this message to the server."""


def client_app(
    problem: MakeProblem, method: MakeMethod, mods: Sequence[Mod] = (), stages: Sequence[Stage] = ()
) -> ClientApp:
    """A Flower client app that takes part in any method.

    The node's config has `partition-id` and `num-partitions`: the node replies for clients partition-id,
    partition-id + num-partitions, … of the problem, and needs only their data (see `fedcmoo.data.remote`). Further
    keys: `device` (the device of the model, "cpu" by default) and `spool` (a folder for the node's files between
    requests, including its key).

        app = client_app(problem, method)

    Args:
        problem: function that creates the problem of a run.
        method: function that creates its method.
        mods: Flower's hooks around each message.
        stages: as in `fit`; they must be the same on all nodes and the server.
    """
    app = ClientApp(mods=list(mods))
    nodes: dict[tuple[int, int], Node] = {}

    def node(context: Context) -> Node:
        # A SuperNode starts a new process for each message; if Flower keeps the process, the data stay loaded.
        key = (context.run_id, context.node_id)
        if key not in nodes:
            nodes.clear()
            try:
                nodes[key] = make_node(problem(context), method(context), stages, context)
            except Exception as error:
                log.exception("this node could not set up the problem")
                raise SetupError(f"{reason(error)} when it set up the problem") from None
        return nodes[key]

    @app.query("hello")
    def hello(message: FlowerMessage, context: Context) -> FlowerMessage:
        return handle("hello", message, context)

    @app.train("ask")
    def ask(message: FlowerMessage, context: Context) -> FlowerMessage:
        return handle("ask", message, context)

    def handle(kind: str, message: FlowerMessage, context: Context) -> FlowerMessage:
        answer = node(context).handle(kind, from_records(message.content))
        return FlowerMessage(to_records(answer), reply_to=message)

    return app


def make_node(problem: Problem, method: Method, stages: Sequence[Stage], context: Context) -> Node:
    """The node of a run, by its config."""
    config = context.node_config
    folder = config.get("spool")
    return Node(
        problem,
        method.channels(stages),
        partition=_number(config, "partition-id"),
        partitions=_number(config, "num-partitions"),
        cache=f"{context.run_id}-{context.node_id}",
        folder=None if folder is None else Path(str(folder)),
        device=str(config.get("device", "cpu")),
    )


def _number(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if type(value) is not int:
        raise ValueError(f"the node config must have {name}=<a whole number>, but it is {value!r}")
    return value
