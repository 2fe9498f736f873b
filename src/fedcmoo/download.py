"""Formats for sending the model to clients: unchanged, or in fewer bits.

Clients train from the model they receive, x', and send their changes of x'. The server adds the mean change to x, which
it keeps in full precision: rounding errors of different rounds do not accumulate.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedcmoo.compression import NUMBER, Rotated
from fedcmoo.messages import Field, Message
from fedcmoo.parameters import State
from fedcmoo.randomness import generator

Download = Literal["full", "bfloat16", "8-bit"]
"""How the parameters are sent to clients: unchanged, in half the bytes, or in a quarter of them after a random
rotation."""

ROTATED = Rotated(adaptive=False)


def check_download(download: str) -> None:
    """Raise unless this is the name of a format."""
    if download not in get_args(Download):
        raise ValueError(f"download must be one of {', '.join(get_args(Download))}, but got {download!r}")


@dataclass(frozen=True)
class Sent:
    """A model as sent and as received."""

    message: Message
    state: State


def send(model: State, download: Download, *seed: int) -> Sent:
    """Encode the model in a format; `seed` is that of the random rotation.

    >>> model = State(torch.tensor([1.0, 1.001]), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    >>> sent = send(model, "bfloat16")
    >>> sent.state.x.tolist(), sent.message.nbytes
    ([1.0, 1.0], 4)
    """
    x = model.x
    if download == "full":
        return Sent(Message(**model.arrays), model)
    rest = {"buffers": model.buffers, "counters": model.counters}
    if download == "bfloat16":
        message = Message(x=x.to(torch.bfloat16), **rest)
    else:
        code = ROTATED.encode(x[None], NUMBER * len(x), generator(*seed, "download"))
        message = Message(**code, **rest)
    arrived, _ = receive(message, len(x), x.dtype, "the server")
    return Sent(message, State(arrived.to(x.device), model.buffers, model.counters))


def receive(message: Message, d: int, dtype: torch.dtype, sender: str) -> tuple[Tensor, Message]:
    """Decode x' [d] from a message in any of the formats; returns it and the rest of the message."""
    if "code" in message:
        code, rest = message.take("code", Field((1, None), torch.uint8), sender)
        return ROTATED.decode(Message(code=code), (1, d), NUMBER * d, sender)[0].to(dtype), rest
    half = "x" in message and message["x"].dtype == torch.bfloat16
    x, rest = message.take("x", Field((d,), torch.bfloat16 if half else dtype), sender)
    return x.to(dtype), rest
