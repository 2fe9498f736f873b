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

from flwr.app import ConfigRecord, RecordDict
from flwr.app import Message as Letter
from flwr.serverapp import Grid

from fedcmoo.flower.wire import VERSION, check_version, clients_of, config, entry
from fedcmoo.messages import BadMessageError
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes

log = logging.getLogger(__name__)

HELLO = "query.hello"
ASK = "train.ask"
POLL = 0.25
"""Seconds between two looks for an answer; more where there are many nodes, so as not to flood the SuperLink."""

PATIENCE = 30.0
"""Seconds that a phase waits for nodes which have come but not yet said whose clients they hold."""

Content = RecordDict | str
"""What a node answered, or the reason why there is no answer."""

Inbox = queue.Queue[tuple[int, Letter | Exception | None]]
"""Answers by node; None where the node was gone before the letter could be sent."""


class Post:
    """Sends letters to nodes and hands out their answers as they come.

    Each letter has a thread that waits for its answer: a node that dies in the middle of an upload, or stalls there on
    purpose, holds up nobody else.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def exchange(self, kind: str, contents: Mapping[int, RecordDict], until: float) -> Iterator[tuple[int, Content]]:
        """Send each node its content; yields the nodes with their answers, as they come.

        Args:
            kind: Flower's message type.
            contents: by node.
            until: the time (monotonic) after which nobody waits any longer.
        """
        inbox: Inbox = queue.Queue()
        start = time.monotonic()
        self.send(kind, contents, until, inbox)
        left = set(contents)
        while left:
            try:
                node, letter = inbox.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            left.discard(node)
            yield node, content_of(letter)
        for node in sorted(left):
            yield node, f"no answer within {until - start:.0f} seconds"

    def send(self, kind: str, contents: Mapping[int, RecordDict], until: float, inbox: Inbox) -> None:
        """Send each node its content; what they answer before `until` will be in the inbox."""
        ttl = max(1.0, until - time.monotonic())
        letters = [Letter(content, node, kind, ttl=ttl) for node, content in contents.items()]
        for node, letter_id in zip(contents, self.grid.push_messages(letters), strict=True):
            if letter_id is None:
                inbox.put((node, None))
            else:
                wait = (node, letter_id, until, max(POLL, 0.05 * len(contents)), inbox)
                threading.Thread(target=self._wait, args=wait, daemon=True).start()

    def _wait(self, node: int, letter_id: str, until: float, poll: float, inbox: Inbox) -> None:
        try:
            while time.monotonic() < until:
                for letter in self.grid.pull_messages([letter_id]):
                    if letter.metadata.reply_to_message_id == letter_id:
                        inbox.put((node, letter))
                        return
                time.sleep(poll)
        except Exception as error:  # raised again where the answers are awaited
            inbox.put((node, error))


def content_of(letter: Letter | Exception | None) -> Content:
    """What a letter from the inbox says."""
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
        N: the number of clients.
        misfit: tells of a node's card what is wrong with it, None if nothing.
    """

    def __init__(self, post: Post, N: int, misfit: Callable[[Card], str | None]) -> None:
        self.post, self.N, self.misfit = post, N, misfit
        self.refused: dict[int, str] = {}
        self._node_of: dict[int, int] = {}
        self._greeted: set[int] = set()
        self._silent: set[int] = set()
        self._inbox: Inbox = queue.Queue()

    def wait_for_all(self, until: float) -> None:
        """Wait until there is a node for every client, or there is no more time."""
        self._refresh()
        while len(self._node_of) < self.N and time.monotonic() < until:
            time.sleep(POLL)
            self._refresh()

    def route(self, clients: tuple[int, ...]) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
        """The clients by node, and those that no node has, with the reason."""
        until = time.monotonic() + PATIENCE
        self._refresh()
        while self._silent and not self._node_of.keys() >= set(clients) and time.monotonic() < until:
            time.sleep(POLL)
            self._refresh()
        by_node: dict[int, tuple[int, ...]] = {}
        lost = {}
        for i in clients:
            node = self._node_of.get(i)
            if node is None:
                lost[i] = "its node is not there"
            else:
                by_node[node] = (*by_node.get(node, ()), i)
        return by_node, lost

    def _refresh(self) -> None:
        """Look who is there: forget nodes that are gone, greet new ones, read the cards of those that answered."""
        online = set(self.post.grid.get_node_ids())
        self._node_of = {i: node for i, node in self._node_of.items() if node in online}
        new = online - self._greeted
        self._greeted = online
        self._silent = (self._silent & online) | new
        if new:
            # A node may be busy with what a server before this one asked, so there is no hurry.
            a_day = time.monotonic() + 24 * 3600
            self.post.send(HELLO, {node: RecordDict({}) for node in sorted(new)}, a_day, self._inbox)
        while not self._inbox.empty():
            node, letter = self._inbox.get()
            self._silent.discard(node)
            try:
                self._enter(node, content_of(letter))
            except (BadMessageError, ValueError) as error:
                self.refused[node] = str(error)
                log.warning("node %d takes no part: %s", node, error)

    def _enter(self, node: int, content: Content) -> None:
        if isinstance(content, str):
            raise BadMessageError(content)
        card = Card.unpack(content)
        wrong = self.misfit(card)
        if wrong is not None:
            raise BadMessageError(wrong)
        # A node that comes back under a new id takes its clients over from its former self.
        self._node_of.update(dict.fromkeys(clients_of(card.partition, card.partitions, self.N), node))
