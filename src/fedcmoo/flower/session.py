"""The engine on the server's side of a Flower federation: asks go to nodes, sums come back."""

from __future__ import annotations

import copy
import itertools
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from flwr.app import Array, RecordDict
from flwr.serverapp import Grid

from fedcmoo.client import State
from fedcmoo.engines.base import Session, blocks
from fedcmoo.engines.local import Local
from fedcmoo.evaluation import Scores
from fedcmoo.flower.nodes import ASK, Card, Post, Roster, describe, objective_names
from fedcmoo.flower.wire import Answer, Request, from_array, largest_message, model_message, to_array
from fedcmoo.messages import BadMessageError
from fedcmoo.parameters import FlatModel
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sums, Task
from fedcmoo.worker import sizes_of

log = logging.getLogger(__name__)


class TooFewRepliesError(RuntimeError):
    """Fewer clients than the run's minimum answered: it ends here, and can be resumed from its last checkpoint."""


@dataclass(frozen=True)
class Flower:
    """A federation of Flower nodes.

    Args:
        grid: Flower's way to the nodes, as a server app gets it.
        deadline: seconds that nodes have for one phase of a round; who is later is left out of it.
        min_replies: the run ends if fewer clients than this answer in a phase.
        start_deadline: seconds to wait at the start for a node for every client.
    """

    grid: Grid
    deadline: float = 600.0
    min_replies: int = 1
    start_deadline: float = 120.0

    def __post_init__(self) -> None:
        for name in ("deadline", "min_replies", "start_deadline"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but got {getattr(self, name)}")

    def start(self, problem: Problem, tasks: Mapping[str, Task], seed: int) -> FlowerSession:
        return FlowerSession(problem, tasks, seed, self)


class FlowerSession(Session):
    """Requests to nodes, one for each node and phase; answers are checked, decoded and added up in client order."""

    def __init__(self, problem: Problem, tasks: Mapping[str, Task], seed: int, settings: Flower) -> None:
        self.problem, self.tasks, self.seed, self.settings = problem, tasks, seed, settings
        self.sizes = sizes_of(problem, FlatModel(copy.deepcopy(problem.model), problem.is_shared))
        self._run = secrets.token_hex(8)
        self._serial = itertools.count()
        self._has_model: dict[int, str] = {}
        self._post = Post(settings.grid)
        self._roster = Roster(self._post, problem.N, self._misfit)
        self._roster.wait_for_all(time.monotonic() + settings.start_deadline)
        self._local = Local().start(problem, tasks, seed)

    def ask(self, ask: Ask, server: Server) -> Sums:
        clients = server.cohort if ask.clients is None else ask.clients
        replies, failures = self._gather(ask, server, clients)
        sums = self._add_up(ask, clients, replies, failures)
        for i, reason in sums.failures.items():
            log.warning("round %d, phase %s: client %d failed: %s", server.round + 1, ask.phase, i, reason)
        if sums.count < self.settings.min_replies:
            raise TooFewRepliesError(
                f"at least {self.settings.min_replies} clients must answer, but {sums.count} did in phase "
                f"{ask.phase!r} of round {server.round + 1}: {sums.failures}; "
                f"nodes that were refused: {self._roster.refused or 'none'}"
            )
        return sums

    def evaluate(self, server: Server, split: str) -> Scores:
        return self._local.evaluate(server, split)

    def close(self) -> None:
        self._local.close()

    def _gather(self, ask: Ask, server: Server, clients: tuple[int, ...]) -> tuple[dict[int, Array], dict[int, str]]:
        """The clients' encoded replies, and for those without one the reason."""
        model_token = f"{self._run}/{server.round}"
        message = to_array(ask.message)
        model = cache(lambda: to_array(model_message(State(server.x, server.buffers, server.counters))))
        routes, failures = self._roster.route(clients)
        until = time.monotonic() + self.settings.deadline
        replies: dict[int, Array] = {}
        send_model = {node for node in routes if self._has_model.get(node) != model_token}
        while routes:
            requests = {
                node: Request(self._token(server, ask), model_token, self.seed, server.round, ask.phase, ids)
                for node, ids in routes.items()
            }
            contents = {
                node: request.pack(message, model() if node in send_model else None)
                for node, request in requests.items()
            }
            routes = {}
            for node, content in self._post.exchange(ASK, contents, until):
                answer = _read(content, requests[node])
                if answer.needs_model and node not in send_model:  # its disk was cleared: send it once more, with x
                    routes[node] = requests[node].clients
                    send_model.add(node)
                    continue
                if answer.replies:
                    self._has_model[node] = model_token
                replies |= answer.replies
                failures |= answer.failures
        return replies, failures

    def _add_up(self, ask: Ask, clients: tuple[int, ...], replies: dict[int, Array], failures: dict[int, str]) -> Sums:
        """Check and decode each reply; sum them block by block, as every engine does, so that the bits are the same."""
        total = Sums()
        for block in blocks(clients):
            sums = Sums()
            for i in block:
                if i not in replies:
                    continue
                try:
                    reply = from_array(replies.pop(i), largest_message(self.sizes))
                    arrays = self.tasks[ask.phase].accept(reply, ask.message, self.sizes, f"client {i}")
                except Exception as error:  # whatever a sender from outside brings about is a failure of that sender
                    failures[i] = f"{type(error).__name__}: {error}"
                else:
                    sums.add(arrays, reply.nbytes)
            total.merge(sums)
        total.failures = {i: failures[i] for i in clients if i in failures}
        return total

    def _token(self, server: Server, ask: Ask) -> str:
        return f"{self._run}/{server.round}/{ask.phase}/{next(self._serial)}"

    def _misfit(self, card: Card) -> str | None:
        """What keeps a node from taking part."""
        mine = Card(0, 1, self.problem.N, objective_names(self.problem), describe(self.sizes))
        for name in ("N", "objectives", "sizes"):
            if getattr(card, name) != getattr(mine, name):
                return f"{name} must be {getattr(mine, name)}, as at the server, but is {getattr(card, name)!r:.200}"
        return None


def _read(content: RecordDict | str, request: Request) -> Answer:
    """A node's answer; every client of the request has a reply or a failure in it, unless the node lacks the model."""
    try:
        if isinstance(content, str):
            raise BadMessageError(content)
        answer = Answer.unpack(content, request)
    except BadMessageError as error:
        return Answer(request.token, failures=dict.fromkeys(request.clients, str(error)))
    for i in request.clients:
        if i not in answer.replies:
            answer.failures.setdefault(i, "the node sent no reply for it")
    return answer
