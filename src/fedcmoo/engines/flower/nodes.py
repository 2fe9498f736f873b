"""Which node holds which clients, and how messages get to nodes and back.

Flower gives nodes random ids, so every node that shows up is asked once who it is: its `partition-id` and
`num-partitions` say which clients live there, and the sizes of its model show early whether it was set up for the same
problem.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.app import Message as Letter
from flwr.serverapp import Grid

from fedcmoo.engines.flower.wire import VERSION, check_version, clients_of, config, entry
from fedcmoo.messages import BadMessageError
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

log = logging.getLogger(__name__)

HELLO = "query.hello"
ASK = "train.ask"
POLL = 0.25
"""Seconds between two looks for an answer; more where there are many nodes, so as not to flood the SuperLink."""


class Post:
    """Sends letters to nodes and hands out their answers as they come.

    Each letter has a thread that waits for its answer: a node that dies in the middle of an upload, or stalls there on
    purpose, holds up nobody else.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def exchange(self, kind: str, contents: Mapping[int, RecordDict], until: float) -> Iterator[tuple[int, Any]]:
        """Send each node its content; yields (node, content of its answer, or the reason why there is none).

        Args:
            kind: Flower's message type.
            contents: by node.
            until: the time (monotonic) after which nobody waits any longer.
        """
        inbox: queue.Queue[tuple[int, Letter | Exception | None]] = queue.Queue()
        ttl = max(1.0, until - time.monotonic())
        nodes = list(contents)
        letters = [Letter(contents[node], node, kind, ttl=ttl) for node in nodes]
        for node, letter_id in zip(nodes, self.grid.push_messages(letters), strict=True):
            if letter_id is None:
                inbox.put((node, None))
            else:
                wait = (node, letter_id, until, max(POLL, 0.05 * len(nodes)), inbox)
                threading.Thread(target=self._wait, args=wait, daemon=True).start()
        started = time.monotonic()
        left = set(nodes)
        while left:
            try:
                node, letter = inbox.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            left.discard(node)
            yield node, _content(letter)
        for node in sorted(left):
            yield node, f"no answer within {time.monotonic() - started:.0f} seconds"

    def _wait(self, node: int, letter_id: str, until: float, poll: float, inbox: queue.Queue[Any]) -> None:
        try:
            while time.monotonic() < until:
                for letter in self.grid.pull_messages([letter_id]):
                    if letter.metadata.reply_to_message_id == letter_id:
                        inbox.put((node, letter))
                        return
                time.sleep(poll)
        except Exception as error:  # raised again where the answers are awaited
            inbox.put((node, error))


def _content(letter: Letter | Exception | None) -> RecordDict | str:
    if letter is None:
        return "the SuperLink did not take the message: the node is gone"
    if isinstance(letter, Exception):
        raise letter
    return str(letter.error.reason) if letter.has_error() else letter.content


@dataclass(frozen=True)
class Card:
    """Who a node is: its place among the nodes and the problem it is set up for."""

    partition: int
    partitions: int
    N: int
    objectives: str
    sizes: str

    def pack(self) -> RecordDict:
        """The card as Flower sends it."""
        return RecordDict({"card": ConfigRecord({"version": VERSION, **asdict(self)})})

    @classmethod
    def unpack(cls, content: RecordDict) -> Card:
        """Read what `pack` wrote."""
        record = config(content, "card")
        check_version(record)
        numbers = {name: entry(record, name, int) for name in ("partition", "partitions", "N")}
        return cls(**numbers, objectives=entry(record, "objectives", str), sizes=entry(record, "sizes", str))


def describe(sizes: Sizes) -> str:
    """The sizes as text, the same on every node with the same model."""
    return " ".join(f"{name}={value}" for name, value in asdict(sizes).items())


def objective_names(problem: Problem) -> str:
    """The objectives' names as one text."""
    return ", ".join(objective.name for objective in problem.objectives)


class Roster:
    """Which node to ask for which client.

    Args:
        post: how to reach nodes.
        fits: tells of a node's card what is wrong with it, None if nothing.
    """

    def __init__(self, post: Post, N: int, fits: Callable[[Card], str | None]) -> None:
        self.post, self.N, self.fits = post, N, fits
        self._seen: set[int] = set()
        self._node_of: dict[int, int] = {}
        self.refused: dict[int, str] = {}

    def refresh(self, until: float) -> None:
        """Look who is there: forget nodes that are gone, greet new ones."""
        online = set(self.post.grid.get_node_ids())
        self._node_of = {i: node for i, node in self._node_of.items() if node in online}
        self._seen &= online
        new = {node: RecordDict({}) for node in sorted(online - self._seen)}
        self._seen |= online
        for node, content in self.post.exchange(HELLO, new, until) if new else ():
            try:
                self._enter(node, content)
            except (BadMessageError, ValueError) as error:
                self.refused[node] = str(error)
                log.warning("node %d takes no part: %s", node, error)

    def wait(self, until: float) -> None:
        """Wait until there is a node for every client, or there is no more time."""
        self.refresh(until)
        while len(self._node_of) < self.N and time.monotonic() < until:
            time.sleep(1)
            self.refresh(until)

    def route(self, clients: tuple[int, ...]) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
        """The clients by node, and those that no node has, with the reason."""
        by_node: dict[int, tuple[int, ...]] = {}
        lost = {}
        for i in clients:
            node = self._node_of.get(i)
            if node is None:
                lost[i] = "its node is not there"
            else:
                by_node[node] = (*by_node.get(node, ()), i)
        return by_node, lost

    def _enter(self, node: int, content: RecordDict | str) -> None:
        if isinstance(content, str):
            raise BadMessageError(content)
        card = Card.unpack(content)
        wrong = self.fits(card)
        if wrong is not None:
            raise BadMessageError(wrong)
        # A node that comes back under a new id takes its clients over from its former self.
        self._node_of.update(dict.fromkeys(clients_of(card.partition, card.partitions, self.N), node))
