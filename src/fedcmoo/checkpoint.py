"""Checkpoints: the server's state after a round in one file, without pickle and with a checksum of the whole file.

A checkpoint is a safetensors file. Its metadata contain the round, the identity of the run, and a SHA-256 of the whole
file, computed with zeros in place of the checksum; so a flipped bit anywhere is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from fedcmoo.files import DamagedError
from fedcmoo.messages import Message, all_finite
from fedcmoo.rounds import Server

FORMAT = "fedcmoo checkpoint 2"
MEMORY = "memory."
CLIENT = "client."
"""Prefixes of the names of arrays in the server's memory and in the clients' memories."""

BLANK = "0" * 64
FIELD = b'"checksum":"'


@dataclass(frozen=True)
class Checkpoint:
    """The state of a server between two rounds.

    Attributes:
        round: the number of finished rounds.
        run: the identity of the run.
        arrays: x, buffers, counters, w, `memory.NAME` for a method's memory, `client.I/NAME` for that of client I.
        id: `Server.id`.
    """

    round: int
    run: Mapping[str, str]
    arrays: Mapping[str, Tensor]
    id: str

    @classmethod
    def of(cls, server: Server, run: Mapping[str, str]) -> Checkpoint:
        """The state of a server."""
        arrays = {**server.model.arrays, "w": torch.from_numpy(server.w)}
        arrays |= {MEMORY + name: value for name, value in server.memory.items()}
        arrays |= Message.join({f"{CLIENT}{i}": state for i, state in server.client_states.items()})
        return cls(server.round, run, arrays, server.id)

    def encode(self) -> bytes:
        """Encode the checkpoint as the content of a file."""
        cpu = {name: array.detach().cpu().contiguous() for name, array in self.arrays.items()}
        about = {
            "format": FORMAT,
            "round": str(self.round),
            "id": self.id,
            "run": json.dumps(dict(self.run)),
            "checksum": BLANK,
        }
        data = safetensors.torch.save(cpu, about)
        start = data.index(FIELD) + len(FIELD)
        return b"".join([data[:start], _checksum(data, start).encode(), data[start + len(BLANK) :]])

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Read what `encode` wrote; DamagedError for anything else."""
        about = _metadata(data)
        if about.get("format") != FORMAT:
            raise DamagedError(f"its format must be {FORMAT!r}, but is {about.get('format')!r}")
        start = data.find(FIELD) + len(FIELD)
        if about.get("checksum") != _checksum(data, start):
            raise DamagedError("its content does not have the checksum that was written with it")
        try:
            run = dict(json.loads(about["run"]))
            return cls(int(about["round"]), run, safetensors.torch.load(data), str(about["id"]))
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise DamagedError(str(error)) from None

    def restore(self, server: Server) -> None:
        """Restore a server to this state; DamagedError, and no change, if the state does not fit the server."""
        state = {**server.model.arrays, "w": torch.from_numpy(server.w)}
        for name, now in state.items():
            array = self.arrays.get(name)
            if array is None or array.shape != now.shape or array.dtype != now.dtype:
                found = "missing" if array is None else f"{array.dtype} {list(array.shape)}"
                raise DamagedError(f"{name!r} must be {now.dtype} {list(now.shape)}, but is {found}")
        memory = {name.removeprefix(MEMORY): a for name, a in self.arrays.items() if name.startswith(MEMORY)}
        for name, array in self.arrays.items():
            if name not in state and not name.startswith((MEMORY, CLIENT)):
                raise DamagedError(f"a checkpoint has no array {name!r}")
            if name in state and array.is_floating_point() and not all_finite(array):
                raise DamagedError(f"{name!r} must be finite, but has NaN or infinite entries")
        if self.round < 0:
            raise DamagedError(f"its round must not be negative, but is {self.round}")
        client_states = _client_states(self.arrays)
        server.x, server.buffers = self.arrays["x"].to(server.x), self.arrays["buffers"].to(server.buffers)
        server.counters = self.arrays["counters"]
        server.w = self.arrays["w"].numpy().astype(np.float64)
        server.memory, server.round, server.id = memory, self.round, self.id
        server.client_states, server.saved_client_states = client_states, (client_states,)


def _metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a safetensors file: eight bytes with the length of a JSON header come first."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about: dict[str, Any] = dict(header["__metadata__"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedError(f"its header cannot be read: {error!r}") from None
    return about


def _checksum(data: bytes, start: int) -> str:
    """The SHA-256 of a file with zeros in place of its checksum, which begins at `start`."""
    digest = hashlib.sha256(memoryview(data)[:start])
    digest.update(BLANK.encode())
    digest.update(memoryview(data)[start + len(BLANK) :])
    return digest.hexdigest()


def _client_states(arrays: Mapping[str, Tensor]) -> dict[int, Message]:
    """The clients' memories, from the arrays "client.I/NAME" of a checkpoint."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, array in arrays.items():
        if key.startswith(CLIENT):
            i, _, name = key.removeprefix(CLIENT).partition("/")
            if not i.isdigit():
                raise DamagedError(f"{key!r} must name a client by its number")
            states.setdefault(int(i), {})[name] = array
    return {i: Message(**state) for i, state in states.items()}
