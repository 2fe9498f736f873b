"""Files that are whole at any moment: either the old content or the new one, also after a crash or on a full disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file by way of a temporary one beside it; its folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")  # not a tempfile: those are private to their owner
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write plain data as JSON."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
