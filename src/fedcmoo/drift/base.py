"""The interface of drift corrections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client, Correct
from fedcmoo.messages import Field, Message
from fedcmoo.rounds import Server, Sizes


@dataclass(frozen=True)
class Drift:
    """A correction of the gradients of clients' local steps; this base class corrects nothing.

    Clients upload nothing for a correction: the server only learns the mean of x - x_i over the cohort. Divided
    by K η_c, this is the mean direction of all local steps of the round.
    """

    plain_steps: ClassVar[bool] = False
    """Whether it needs clients whose steps are η_c times the direction, i.e. SGD without momentum."""
    pairs: ClassVar[bool] = False
    """Whether it needs each batch's gradient at another point too, so that no step can reuse that of phase one."""

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """The shapes of the arrays that clients are sent besides the model and the weights."""
        return {}

    def message(self, server: Server) -> Mapping[str, Tensor]:
        """The arrays of `fields`."""
        return {}

    def start(self, client: Client, message: Message) -> Correct | None:
        """The function that changes the gradient of every local step; None for no change."""
        return None

    def finish(self, client: Client, message: Message, direction: Tensor) -> None:
        """Called with the mean direction of the client's steps [d]; updates the client's memory."""

    def learn(self, server: Server, direction: Tensor, replies: int) -> None:
        """Called with the mean direction of the cohort [d], and the number of its clients."""


def remembered(server: Server, name: str) -> Tensor:
    """A vector [d] in the server's memory; zero before the first round."""
    return server.memory[name] if name in server.memory else server.x.new_zeros(server.sizes.d)
