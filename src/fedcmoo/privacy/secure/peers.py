"""The keys of the other nodes, which a node stores when it first sees them: the server cannot replace them later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedcmoo.files import reading, write_json
from fedcmoo.messages import BadMessageError
from fedcmoo.privacy.secure.protocol import PublicKeys


class Peers:
    """The known public keys of a federation's nodes, in a file of one of them.

    Args:
        folder: the folder of the node's files.
        nodes: the number of nodes; client i belongs to node i modulo this number.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.file, self.nodes = folder / f"peers-{nodes}.json", nodes

    def check(self, keys: Mapping[int, PublicKeys]) -> None:
        """Raise `BadMessageError` unless the node of each client has the key that it had first; store new ones.

        Args:
            keys: the clients' keys, whose signatures were checked.
        """
        known: dict[str, str] = {}
        if self.file.exists():
            with reading(self.file):
                known = json.loads(self.file.read_text())
        seen = dict(known)
        for i, its in keys.items():
            node, key = str(i % self.nodes), its.node.hex()
            if seen.setdefault(node, key) != key:
                raise BadMessageError(
                    f"client {i} must be one of the node with key {seen[node][:16]}…, but its keys are signed by "
                    f"{key[:16]}…; if node {node} was replaced, delete its entry in {self.file.name}"
                )
        if seen != known:
            write_json(self.file, seen)
