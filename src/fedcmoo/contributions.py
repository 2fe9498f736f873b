"""Contributions and channels: what clients compute for a round, and how it reaches the server.

A contribution is one thing that is computed on a client and added up over the cohort: an update, a sketch of the
Jacobian, M losses. A channel carries it, in the same way for every contribution and every engine:

    client: compute -> weight -> stages -> encode
    server: check and decode -> `on_reply` of the stages in reverse order -> add -> `on_server` in reverse order
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from fedcmoo.client import Client
from fedcmoo.messages import Add, BadMessageError, Field, Message, check, check_values
from fedcmoo.ownership import Share
from fedcmoo.problem import Problem
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums

Arrays = Mapping[str, Tensor]

STAGE = "stage"
"""The prefix of the names of arrays in messages that belong to stages and not to the contribution."""


class Contribution(ABC):
    """A quantity that clients compute and that is added up over the cohort.

    Most contributions only implement `compute` and `fields`: their arrays are sent unchanged. Compressed contributions
    also implement `encode` and `decode`.
    """

    summable: ClassVar[bool] = True
    """Whether the server needs only the sum of all replies, and no single one."""
    update: ClassVar[str | None] = None
    """The array with entries for all d parameters, which a method may compress; None if there is none."""
    gradients: ClassVar[bool] = False
    """Whether its arrays are computed from gradients at x, rather than from changes of the model."""
    homogeneous: ClassVar[bool] = True
    """Whether its arrays scale by their fields' degrees when the client's gradients are multiplied by a number."""

    @property
    def exact(self) -> bool:
        """Whether the server decodes the arrays that the client encoded, without an error."""
        return True

    @property
    def needs_exact_sums(self) -> str | None:
        """The name of what fails unless the server adds up exactly what clients computed; None for nothing."""
        return None

    @abstractmethod
    def compute(self, client: Client, message: Message) -> Arrays:
        """The client's arrays, given the server's message."""

    @abstractmethod
    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """The fields of the arrays that `compute` returns."""

    def check(self, sizes: Sizes) -> None:  # noqa: B027 - most have nothing to check
        """Raise unless the settings are valid for a model of these sizes."""

    def encode(self, arrays: Arrays, client: Client) -> Message:
        """The arrays as they are sent: their bytes are counted."""
        return Message(**arrays)

    def decode(self, payload: Message, sizes: Sizes, sender: str) -> Arrays:
        """Check one client's payload and return the arrays that are added up.

        Raises:
            BadMessageError: naming the sender and the array, if `encode` cannot have made the payload.
        """
        check(payload, self.fields(sizes), sender)
        return payload


class Stage:
    """A processing step for contributions between client and server; subclasses override the methods they need."""

    single_replies: ClassVar[bool] = False
    """Whether `on_server` gets the arrays of all clients as rows instead of their sums."""

    @property
    def exact(self) -> bool:
        """Whether the sums stay those of what clients computed, up to the rounding of float32 numbers."""
        return True

    def of(self, contribution: Contribution) -> Stage:
        """The version of this stage for a contribution."""
        return self

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        """Raise ValueError, before work starts, unless the stage can be used with the contribution."""

    def check_run(self, problem: Problem, n: int, stages: Sequence[Stage]) -> None:
        """Raise ValueError, before work starts, unless the stage can be used with the problem, cohorts of n clients and
        all stages of the run."""

    tells: ClassVar[Sequence[str]] = ()
    """The names of the values that `message` may send to clients."""
    own_fields: ClassVar[Mapping[str, Field]] = MappingProxyType({})
    """The fields of additional arrays that `on_client` returns, which are sent unchanged and added up."""

    def message(self, server: Server) -> Arrays:
        """The values sent to clients with each ask, available as `client.told` in `on_client`."""
        return {}

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        """Process one client's arrays before they are encoded; returns the input of the next stage."""
        return arrays

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        """Process one client's decoded arrays before they are added up at the server; `told` was sent to it."""
        return arrays

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        """Read or change the totals of one contribution after all replies have been added up."""


@dataclass(frozen=True)
class Channel:
    """Transfers one contribution from clients to the server: stages, encoding, checks and decoding."""

    contribution: Contribution
    stages: Sequence[Stage] = ()

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """The fields of all arrays that are added up: the contribution's and those of stages."""
        own = {name: field for stage in self.stages for name, field in stage.own_fields.items()}
        return {**self.contribution.fields(sizes), **own}

    def tell(self, message: Message, server: Server) -> Message:
        """The message to the contribution, with the values that stages send to clients."""
        told = Message.join({STAGE: {k: array for stage in self.stages for k, array in stage.message(server).items()}})
        return Message(**message, **told) if told else message

    @property
    def single_replies(self) -> bool:
        """Whether the arrays of all clients are kept as rows instead of their sums."""
        return any(stage.single_replies for stage in self.stages)

    def send(self, client: Client, message: Message) -> Message:
        """The client's side: compute and encode its reply."""
        told, message = message.apart(STAGE)
        unknown = set(told).difference(*(stage.tells for stage in self.stages))
        if unknown:
            raise BadMessageError(
                f"the server must send values only for stages that this client has, but also sent {sorted(unknown)}; "
                "give server and clients the same method and stages"
            )
        arrays, own = self.contribution.compute(client, message), {}
        if self.stages or client.weight != 1:
            fields = self.contribution.fields(client.sizes)
            arrays, client.told = weighted(arrays, fields, client.weight), told
            for stage in self.stages:
                arrays = stage.on_client(arrays, fields, client)
            own = {name: array for name, array in arrays.items() if name not in fields}
            arrays = {name: array for name, array in arrays.items() if name in fields}
        payload = self.contribution.encode(arrays, client)
        return Message(**payload, **Message.join({STAGE: own})) if own else payload

    def receive(self, payload: Message, sizes: Sizes, sender: str, told: Arrays) -> Arrays:
        """The server's side: check and decode one reply; `told` are the values that stages had sent to the client."""
        own, payload = payload.apart(STAGE)
        check(own, {name: field for stage in self.stages for name, field in stage.own_fields.items()}, sender)
        arrays = self.contribution.decode(payload, sizes, sender)
        if self.stages:
            fields = self.contribution.fields(sizes)
            for stage in reversed(self.stages):
                arrays = stage.on_reply(arrays, fields, told)
        return {**arrays, **own} if own else arrays


def weighted(arrays: Arrays, fields: Mapping[str, Field], weight: float) -> Arrays:
    """A client's arrays as if its gradients were multiplied by its weight p_i; only arrays that are summed change."""
    if weight == 1:
        return arrays
    return {
        name: array * weight ** fields[name].degree if fields[name].add == "sum" else array
        for name, array in arrays.items()
    }


Channels = Mapping[str, Channel]
"""The channels of a method's contributions, by the contributions' names."""


def check_channels(channels: Channels, problem: Problem, n: int, sizes: Sizes) -> None:
    """Raise ValueError unless all contributions fit the model, and all stages their contributions, the problem and
    cohorts of n clients."""
    for channel in channels.values():
        channel.contribution.check(sizes)
        check_exact(channel, problem)
    for channel in channels.values():
        for stage in channel.stages:
            stage.check_run(problem, n, channel.stages)
        for stage in channel.stages:
            stage.check(channel.contribution, sizes)


def check_exact(channel: Channel, problem: Problem) -> None:
    """Raise ValueError if a contribution needs exact sums, but the server would get others."""
    name = channel.contribution.needs_exact_sums
    if name is None:
        return
    reasons = [] if channel.contribution.exact else ["updates are compressed"]
    reasons += [f"{type(stage).__name__} changes them" for stage in channel.stages if not stage.exact]
    if problem.weights != "equal" and (problem.weights == "samples" or len(set(problem.weights)) > 1):
        reasons.append("clients have different weights")
    if reasons:
        raise ValueError(
            f"{name} needs the exact mean update of clients with equal weights, since its variates would add up every "
            f"error, but {' and '.join(reasons)}; take another drift correction, such as FedCM()"
        )


def reply(channels: Channels, client: Client, messages: Mapping[str, Message]) -> Message:
    """A client's reply to an ask: all contributions that were asked for."""
    return Message.join({name: channels[name].send(client, message) for name, message in messages.items()}).cpu()


def add_reply(
    sums: Sums,
    channels: Channels,
    messages: Mapping[str, Message],
    reply: Message,
    sizes: Sizes,
    sender: str,
    share: Share | None = None,
) -> None:
    """Check and decode one client's reply to an ask with these messages, and add it to the sums."""
    unknown = [key for key in reply if not key.startswith(tuple(f"{name}/" for name in messages))]
    if unknown:
        raise BadMessageError(f"{sender} must send {list(messages)}, but sent {unknown[0]!r:.80}")
    arrays: dict[str, Tensor] = {}
    how: dict[str, Add] = {}
    for name, message in messages.items():
        channel = channels[name]
        decoded = channel.receive(reply.part(name), sizes, sender, message.part(STAGE))
        fields = channel.fields(sizes)
        check_values(decoded, fields, sender)
        rows = {key for key, field in fields.items() if field.add == "sum" and channel.single_replies}
        arrays |= {f"{name}/{key}": array[None] if key in rows else array for key, array in decoded.items()}
        how |= {f"{name}/{key}": field.add for key, field in fields.items() if key in decoded and field.add != "sum"}
        how |= {f"{name}/{key}": "each" for key in rows}
    sums.add(arrays, reply.size, how, share)


def finish(sums: Sums, channels: Channels, names: Iterable[str], server: Server) -> None:
    """Run the server's side of the stages after all replies have been added up."""
    for name in names:
        channel, part = channels[name], sums.part(name)
        for stage in reversed(channel.stages):
            stage.on_server(part, channel.fields(server.sizes), server)
        sums.count, sums.P, sums.P_k = part.count, part.P, part.P_k
        sums.totals |= {f"{name}/{key}": array for key, array in part.totals.items()}
        sums.noise |= {f"{name}/{key}": std for key, std in part.noise.items()}
