"""Tables of bytes, one row for each client, as messages: the format of keys, shares and clients' states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedcmoo.messages import BadMessageError, Field, Message, check


def from_bytes(data: bytes) -> Tensor:
    """Convert bytes to the array that is sent, uint8 [n]."""
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8))


def to_bytes(array: Tensor) -> bytes:
    """Convert the array back to the bytes given to `from_bytes`."""
    return array.numpy().tobytes()


def to_message(rows: Mapping[int, bytes]) -> Message:
    """Convert rows of equal length, by client, to a message.

    >>> from_message(to_message({3: b"ab", 1: b"cd"}), length=2, sender="the server")
    {1: b'cd', 3: b'ab'}
    """
    clients = sorted(rows)
    data = from_bytes(b"".join(rows[i] for i in clients))
    table = data.reshape(len(clients), -1) if clients else data.reshape(0, 0)
    return Message(clients=torch.tensor(clients, dtype=torch.int64), rows=table)


def from_message(message: Message, length: int, sender: str) -> dict[int, bytes]:
    """Convert a message back to the rows given to `to_message`, if they have this length."""
    check(message, {"clients": Field((None,), torch.int64), "rows": Field((None, None), torch.uint8)}, sender)
    clients, rows = message["clients"].tolist(), message["rows"]
    if rows.shape != (len(clients), length if clients else 0):
        expected = (len(clients), length)
        raise BadMessageError(f"{sender}: 'rows' must have shape {expected}, but has {tuple(rows.shape)}")
    if clients != sorted(set(clients)) or (clients and clients[0] < 0):
        raise BadMessageError(f"{sender}: 'clients' must be different numbers from 0 in ascending order")
    return {i: row.tobytes() for i, row in zip(clients, rows.numpy(), strict=True)}
