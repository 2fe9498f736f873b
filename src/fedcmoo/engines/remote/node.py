"""The node's side of a federation: it replies for the clients whose data it holds."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from fedcmoo.contributions import Channels
from fedcmoo.engines.remote.nodes import describe
from fedcmoo.engines.remote.protocol import (
    Answer,
    NodeRequest,
    Packet,
    check_digest,
    check_version,
    clients_of,
    entry,
    largest_message,
    share_text,
)
from fedcmoo.engines.remote.store import CachingWorker, Memories, ModelCache, NodeIdentity, NodeStore
from fedcmoo.failures import DivergedError
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.ownership import Share
from fedcmoo.parameters import State
from fedcmoo.privacy.secure import secure_of
from fedcmoo.problem import Problem
from fedcmoo.worker import Request

log = logging.getLogger(__name__)


class Node:
    """One node: its clients, their worker and its files.

    Args:
        problem, channels: of the run; only the data of this node's clients are needed.
        partition, partitions: the node's number, and the number of nodes.
        cache: identifies node and run for the data kept between the asks of a round.
        folder: the folder of the node's files; None for the system's temporary folder.
        device: the device of the model.
    """

    def __init__(
        self,
        problem: Problem,
        channels: Channels,
        partition: int,
        partitions: int,
        cache: str,
        folder: Path | None = None,
        device: str = "cpu",
    ) -> None:
        torch.set_num_threads(1)  # as in the workers of all engines, so that all give the same bits
        self.clients = clients_of(partition, partitions, problem.N)
        self.worker = CachingWorker(problem, channels, seed=0, device=device)
        self.store = NodeStore(folder)
        self.worker.cache = ModelCache(self.store.folder("cache", cache).path)
        self.identity = NodeIdentity(self.store.path)
        secure = secure_of(channels)
        if secure is not None:
            from fedcmoo.privacy.secure.party import Party, Peers  # needs the extra `privacy`

            peers = None if secure.nodes else Peers(self.store.path, partitions)
            self.worker.party = Party(secure, channels, self.worker.sizes, self.identity.key, self.worker.cache, peers)
        self.info = describe(problem, self.worker.sizes, partition, partitions, self.identity.public)

    def handle(self, kind: str, packet: Packet) -> Packet:
        """The answer to a packet of this kind."""
        handlers: Mapping[str, Callable[[Packet], Packet]] = {"hello": self._hello, "ask": self._ask}
        return handlers[kind](packet)

    def _hello(self, packet: Packet) -> Packet:
        check_version(packet.values)
        shares = tuple(share_text(self.worker.problem.share(i)) for i in self.clients)
        info = replace(self.info, shares=shares)
        return info.pack(self.identity.sign(info.claim(entry(packet.values, "challenge", str))))

    def _ask(self, packet: Packet) -> Packet:
        request, messages, model = NodeRequest.unpack(packet, self.worker.sizes)
        if model is not None:
            self.worker.cache.write_model(request.version, model)
        state = self.worker.cache.read_model(request.version)
        if state is None and request.names:
            return Answer(request.token, needs_model=True).pack()
        self.worker.seed = request.seed
        memories = Memories(self.store.folder("memory", f"{request.run}/{self.info.partition}").path)
        answer = Answer(request.token)
        for i, digest in zip(request.clients, request.memories, strict=True):
            try:
                own = packet.blobs.get(f"own-{i}", b"")
                self._reply(i, digest, state, request, messages, own, memories, answer)
            except Exception as error:  # the other clients of this node are not affected
                log.exception("client %d failed in phase %s of round %d", i, request.names, request.round + 1)
                answer.failures[i] = reason(error)
        return answer.pack()

    def _reply(
        self,
        i: int,
        digest: str,
        state: State | None,
        request: NodeRequest,
        messages: Mapping[str, Message],
        own: bytes,
        memories: Memories,
        answer: Answer,
    ) -> None:
        if i not in self.clients:
            raise BadMessageError(f"this node holds clients {self.clients}, but was asked for client {i}")
        unknown = [name for name in messages if name not in self.worker.channels]
        if unknown:
            raise BadMessageError(
                f"contributions must be of {sorted(self.worker.channels)}, but got {unknown[0]!r:.40}"
            )
        remembered = {i: memories.load(i, check_digest(digest))} if digest else {}
        shares, scales = request.shares_of(i, self.worker.sizes.M)
        self._check_labels(i, shares.get(i))
        ask = Request(request.round, request.version, messages, remembered, shares, scales)
        if request.trip:
            message = Message.decode(own, largest_message(self.worker.sizes, self.worker.problem.N))
            reply, memory = self.worker.trip(state, ask, i, request.trip, message)
        elif self.worker.party is not None or state is None:
            raise BadMessageError("a node with secure sums replies to no ask of a single trip, but got one")
        else:
            reply, memory = self.worker.reply(state, ask, i)
        answer.replies[i] = reply.encode()
        if memory is not None:
            answer.memories[i] = memories.save(i, memory, (digest, *request.keep))

    def _check_labels(self, i: int, share: Share | None) -> None:
        """Raise if client i no longer has labels for the objectives that it owned when the node joined."""
        problem = self.worker.problem
        labelled = problem.share(i).objectives
        lost = [k for k in (range(problem.M) if share is None else share.objectives) if k not in labelled]
        if lost:
            raise BadMessageError(
                f"client {i} must have labels for objective {problem.objectives[lost[0]].name!r}, which it owned when "
                "its node joined, but has none; a node whose labels changed must join again"
            )


def reason(error: Exception) -> str:
    """The text of an error for the server. Other exceptions may quote a client's data, so their messages stay in the
    node's log."""
    if isinstance(error, (DivergedError, BadMessageError)):
        return str(error)
    return f"{type(error).__name__} (see the node's log)"
