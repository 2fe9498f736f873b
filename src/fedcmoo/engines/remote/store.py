"""A node's files: the model, gradients between the asks of a round, its clients' memories, and its key.

Some frameworks start a new process for every message, so no state may be kept in a process. Each file has a token that
identifies its model, round and run: data of another one are never used. Only the node's user can read the files.

The node signs with its key when the server asks for its identity. The server binds clients to the first key that claims
them, so no other node can take over these clients, while a restarted node is recognised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcmoo.files import reading, remove_unfinished, write_atomically
from fedcmoo.first_step import FirstStep
from fedcmoo.messages import Message
from fedcmoo.optional import require
from fedcmoo.parameters import State
from fedcmoo.worker import Request, Worker

if TYPE_CHECKING:
    from fedcmoo.privacy.secure.keys import NodeKey

DAY = 24 * 3600
IDENTITY = "identity.key"
FORGET_AFTER = {"cache": DAY, "memory": 90 * DAY}
"""Seconds without use after which the folder of a run is deleted, by the kind of its contents."""


class NodeStore:
    """The files of one node, in the folder `parent`; None for the system's temporary folder."""

    def __init__(self, parent: Path | None) -> None:
        self.path = (parent or Path(tempfile.gettempdir())) / f"fedcmoo-{os.getuid()}"
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = self.path.lstat()  # in a folder for all users, another user may have made it, or a link of that name
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            raise PermissionError(f"{self.path} must be a folder of the user who runs the node, but is not")
        for kind, seconds in FORGET_AFTER.items():
            for folder in self.path.glob(f"{kind}-*"):
                if time.time() - folder.stat().st_mtime > seconds:
                    shutil.rmtree(folder, ignore_errors=True)

    def folder(self, kind: str, name: str) -> Folder:
        """A folder for one kind of contents ("cache" or "memory") of one run."""
        return Folder(self.path / f"{kind}-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}")


class Folder:
    """Named arrays in files, each with a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, exist_ok=True)
        remove_unfinished(path, age=DAY)  # another process may be writing now
        os.utime(path)

    def write(self, name: str, token: str, arrays: Mapping[str, Tensor]) -> None:
        """Keep some arrays under a name and token."""
        cpu = {key: array.detach().cpu().contiguous() for key, array in arrays.items()}
        write_atomically(self.path / name, safetensors.torch.save(cpu, {"token": token}))

    def read(self, name: str, token: str) -> dict[str, Tensor] | None:
        """The arrays kept under a name, if they have this token."""
        try:
            with safe_open(self.path / name, framework="pt") as file:
                if (file.metadata() or {}).get("token") != token:
                    return None
                return {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - it is no dict
        except (FileNotFoundError, SafetensorError):
            return None

    def delete(self, name: str) -> None:
        """Forget what is kept under a name."""
        (self.path / name).unlink(missing_ok=True)


class ModelCache(Folder):
    """The model of the latest request, and the gradients that were computed at it."""

    def write_model(self, version: str, model: State) -> None:
        """Keep a model; gradients at the previous one are deleted."""
        for old in self.path.glob("first-*"):
            old.unlink(missing_ok=True)
        self.write("model", version, model.arrays)

    def read_model(self, version: str) -> State | None:
        """The model of this version."""
        arrays = self.read("model", version)
        return None if arrays is None else State(**arrays)


class Memories(Folder):
    """The memories of stateful clients, in files named by client and digest: the server chooses which one is used.

    So a reply that the server did not use leaves no trace, and a server that returns to its last checkpoint finds the
    memories of that time.
    """

    def load(self, i: int, digest: str) -> Message:
        """The memory of client i with this digest."""
        arrays = self.read(f"client-{i}-{digest}", digest)
        if arrays is None:
            raise FileNotFoundError(f"the memory {digest} of client {i} is not on this node any more")
        return Message(**arrays)

    def save(self, i: int, memory: Message, keep: Collection[str]) -> str:
        """Keep a memory of client i and return its digest; older ones are deleted, except those in `keep`."""
        digest = hashlib.blake2b(memory.encode(), digest_size=16).hexdigest()
        self.write(f"client-{i}-{digest}", digest, memory)
        for old in self.path.glob(f"client-{i}-*"):
            if old.name.rpartition("-")[2] not in {digest, *keep}:
                old.unlink(missing_ok=True)
        return digest


class CachingWorker(Worker):
    """A worker that keeps the gradients of its clients in files, since its process may end after every request."""

    cache: ModelCache

    def reply(self, state: State, request: Request, i: int) -> tuple[Message, Message | None]:
        name, token = f"first-{i}", f"{request.round}/{request.version}"
        arrays = self.cache.read(name, token)
        kept = None
        if arrays is not None:
            J, buffers, counters = (arrays[key].to(self.model.device) for key in ("J", "buffers", "counters"))
            kept = FirstStep(J, buffers, counters)
        self._kept, self._kept_for = ({} if kept is None else {i: kept}), (request.round, request.version)
        result = super().reply(state, request, i)
        first = self._kept.get(i)
        if first is not None and kept is None:
            self.cache.write(name, token, {"J": first.J, "buffers": first.buffers, "counters": first.counters})
        return result


class NodeIdentity:
    """The Ed25519 key of a node, in a file that only its user can read; created there if there is none."""

    def __init__(self, folder: Path) -> None:
        private_key = require("cryptography.hazmat.primitives.asymmetric.ed25519", "privacy").Ed25519PrivateKey
        path = folder / IDENTITY
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=folder) as file:  # only its user can read it
                file.write(private_key.generate().private_bytes_raw())
                file.flush()
                with contextlib.suppress(FileExistsError):  # another process of this node was faster
                    os.link(file.name, path)  # the complete key, or none
        with reading(path):
            self.key: NodeKey = private_key.from_private_bytes(path.read_bytes())

    @property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, text: str) -> str:
        """A signature of a text, in hexadecimal digits."""
        return self.key.sign(text.encode()).hex()


def is_signed(public: str, text: str, signature: str) -> bool:
    """Whether the owner of a public key signed a text."""
    from fedcmoo.privacy.secure import keys  # needs the extra `privacy`

    try:
        return keys.is_signed(bytes.fromhex(public), text.encode(), bytes.fromhex(signature))
    except ValueError:
        return False
