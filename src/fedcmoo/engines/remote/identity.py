"""A node's identity: a key that it creates once, and signs with when the server asks for its identity.

The server binds clients to the first key that claims them. So no other node can take over these clients, while a
restarted node is recognised.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedcmoo.files import reading
from fedcmoo.privacy.secure import keys

FILE = "identity.key"


class Identity:
    """The Ed25519 key of a node, in a file that only its user can read; created there if there is none."""

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=folder) as file:  # only its user can read it
                file.write(Ed25519PrivateKey.generate().private_bytes_raw())
                file.flush()
                with contextlib.suppress(FileExistsError):  # another process of this node was faster
                    os.link(file.name, path)  # the complete key, or none
        with reading(path):
            self.key = Ed25519PrivateKey.from_private_bytes(path.read_bytes())

    @property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, text: str) -> str:
        """A signature of a text, in hexadecimal digits."""
        return self.key.sign(text.encode()).hex()


def is_signed(public: str, text: str, signature: str) -> bool:
    """Whether the owner of a public key signed a text."""
    try:
        return keys.is_signed(bytes.fromhex(public), text.encode(), bytes.fromhex(signature))
    except ValueError:
        return False
