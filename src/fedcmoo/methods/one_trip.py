"""Rounds with one trip: the contributions to G are sent with the updates, and G gives the weights of the next round."""

from collections.abc import Generator
from typing import Literal

import torch

from fedcmoo.gram import JACOBIAN, Gram, OnePhase, one_phase
from fedcmoo.messages import Message
from fedcmoo.methods.base import is_known, is_usable
from fedcmoo.rounds import Ask, Server
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix

Trips = Literal[1, 2]
"""The number of round trips to the clients per round. With 2, G is that of the current model; with 1, the weights come
from the previous round's G, and are equal in the first round."""

LAST_GRAM = "last-gram"
"""The name in the server's memory of the latest G, [M, M], kept until weights are computed from it."""


def check_trips(trips: int, gram: Gram) -> None:
    """Raise unless the estimator supports this number of trips."""
    if trips not in (1, 2):
        raise ValueError(f"trips must be 1 or 2, but got {trips}")
    if trips == 1:
        one_phase(gram)


def take_last_gram(server: Server) -> Matrix | None:
    """The G measured in an earlier round, returned only once; None if there is none."""
    G = server.memory.pop(LAST_GRAM, None)
    return None if G is None else G.numpy()


def train_and_measure(server: Server, training: Message, gram: OnePhase, *others: str) -> Generator[Ask, Sums, Sums]:
    """The only ask of a round: clients train as `training` says, and contribute to G and to `others`.

    In the history, G is recorded for this round, in which it was measured, if the cohort has owners of all objectives.
    """
    messages = {"train": training, JACOBIAN: gram.message(server)}
    sums = yield Ask({**messages, **dict.fromkeys(others, Message())})
    G = gram.combine(sums.part(JACOBIAN))
    if is_usable(server, G):
        server.G = G if is_known(G).all() else None
        server.memory[LAST_GRAM] = torch.from_numpy(G)
    return sums
