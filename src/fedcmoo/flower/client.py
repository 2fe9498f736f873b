"""The client's side of a Flower federation: an app that answers for the clients whose data lie on its node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from flwr.app import Context
from flwr.app import Message as Letter
from flwr.clientapp import ClientApp

from fedcmoo.client import DivergedError, State
from fedcmoo.flower.nodes import Card, describe, objective_names
from fedcmoo.flower.spool import Spool, SpoolingWorker
from fedcmoo.flower.wire import Answer, Request, clients_of, to_array
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.methods.base import Method
from fedcmoo.problem import Problem

log = logging.getLogger(__name__)

Mod = Callable[[Letter, Context, Callable[[Letter, Context], Letter]], Letter]
"""Flower's hook around a message: (message, context, what comes next) -> reply."""

MakeProblem = Callable[[Context], Problem]
"""The problem of a run, from Flower's context: `run_config` is the same everywhere, `node_config` is a node's own."""

MakeMethod = Callable[[Context], Method]
"""The method of a run, from Flower's context; it must be the same on all nodes and the server."""


class SetupError(RuntimeError):
    """A node could not make its problem; Flower tells the server this message and nothing else."""


def client_app(problem: MakeProblem, method: MakeMethod, mods: Sequence[Mod] = ()) -> ClientApp:
    """A Flower client app that takes part in any method.

    The node's config has `partition-id` and `num-partitions`: it answers for clients partition-id,
    partition-id + num-partitions, … of the problem, and needs the data of these alone (see `fedcmoo.data.remote`).
    Further keys: `device` (where the model computes, "cpu" by default) and `spool` (a folder for what is kept between
    the phases of a round).

        app = client_app(problem, method)

    Args:
        problem: makes the problem of a run.
        method: makes its method.
        mods: Flower's hooks around each message.
    """
    app = ClientApp(mods=list(mods))
    sites: dict[tuple[int, int], Site] = {}

    def site(context: Context) -> Site:
        # A SuperNode starts a new process for each message; where Flower keeps it, the data stay loaded.
        key = (context.run_id, context.node_id)
        if key not in sites:
            sites.clear()
            try:
                made = problem(context), method(context)
            except Exception as error:
                log.exception("this node could not set up the problem")
                raise SetupError(f"{_reason(error)} when it set up the problem") from None
            sites[key] = Site(*made, context)
        return sites[key]

    @app.query("hello")
    def hello(letter: Letter, context: Context) -> Letter:
        return Letter(site(context).card.pack(), reply_to=letter)

    @app.train("ask")
    def ask(letter: Letter, context: Context) -> Letter:
        return Letter(site(context).answer(letter).pack(), reply_to=letter)

    return app


class Site:
    """One node: its clients, their worker and its spool."""

    def __init__(self, problem: Problem, method: Method, context: Context) -> None:
        # One thread, as in every worker of every engine, so that all of them give the same bits.
        torch.set_num_threads(1)
        config = context.node_config
        partition, partitions = (_number(config, name) for name in ("partition-id", "num-partitions"))
        self.clients = clients_of(partition, partitions, problem.N)
        self.tasks = method.tasks()
        self.worker = SpoolingWorker(problem, self.tasks, seed=0, device=str(config.get("device", "cpu")))
        folder = config.get("spool")
        self.spool = Spool(None if folder is None else Path(str(folder)), f"{context.run_id}-{context.node_id}")
        sizes = describe(self.worker.sizes)
        self.card = Card(partition, partitions, problem.N, objective_names(problem), sizes)

    def answer(self, letter: Letter) -> Answer:
        """The replies of this node's clients to a request."""
        request, message, model = Request.unpack(letter.content, self.worker.sizes)
        if model is not None:
            self.spool.write_model(request.model_token, model)
        state = self.spool.read_model(request.model_token)
        if state is None:
            return Answer(request.token, needs_model=True)
        self.worker.begin(self.spool, request.model_token, request.seed)
        answer = Answer(request.token)
        for i in request.clients:
            try:
                answer.replies[i] = to_array(self._reply(state, request, message, i))
            except Exception as error:  # one client's trouble is not that of the others on this node
                log.exception("client %d failed in phase %s of round %d", i, request.phase, request.round + 1)
                answer.failures[i] = _reason(error)
        return answer

    def _reply(self, state: State, request: Request, message: Message, i: int) -> Message:
        if i not in self.clients:
            raise BadMessageError(f"this node holds clients {self.clients}, but was asked for client {i}")
        if request.phase not in self.tasks:
            raise BadMessageError(f"the phase must be one of {sorted(self.tasks)}, but is {request.phase!r:.40}")
        return self.worker.answer(state, request.round, request.phase, message, i)


def _reason(error: Exception) -> str:
    """What the server is told. Messages of foreign exceptions may quote a client's data, so these stay in its log."""
    if isinstance(error, (DivergedError, BadMessageError)):
        return str(error)
    return f"{type(error).__name__} (see the node's log)"


def _number(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if type(value) is not int:
        raise ValueError(f"the node config must have {name}=<a whole number>, but it is {value!r}")
    return value
