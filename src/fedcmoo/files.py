"""Atomic file writes: a file has its complete old or new content, even after a crash or on a full disk."""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

UNFINISHED = ".unfinished"
"""The suffix of files that are still being written."""


class DamagedError(ValueError):
    """A file whose content is not what was written."""


@contextmanager
def reading(what: str | Path) -> Iterator[None]:
    """Turn any error that a parser raises on damaged content into one that names the file."""
    try:
        yield
    except DamagedError:
        raise
    except Exception as error:
        raise DamagedError(f"{what} cannot be read ({error!r:.200}); if it is damaged, get it again") from error


def write_atomically(path: Path, data: bytes, keep: Path | None = None) -> None:
    """Write a file atomically: it always has the complete old or new content on the disk. The old content is kept
    under the name `keep`, if there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not a tempfile: those are private to their owner.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def file_name(text: str) -> str:
    """Convert a text into a file name that is valid on every file system.

    >>> file_name("K = 5: left/right")
    'K___5__left_right'
    """
    return re.sub(r"[^\w.-]", "_", text)


def write_json(path: Path, value: Any) -> None:
    """Write plain data as JSON."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def remove_unfinished(folder: Path, age: float = 0.0) -> None:
    """Delete partial files of killed processes that are older than some seconds; none are younger if no other process
    writes to the folder."""
    for stray in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - stray.stat().st_mtime >= age:
                stray.unlink()


def lock_folder(folder: Path) -> IO[str]:
    """Lock a folder for one process at a time; the system releases the lock when the process ends."""
    file = (folder / ".lock").open("w")
    try:
        import fcntl
    except ImportError:  # Windows: without protection
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OSError(f"{folder} is in use by another run; wait for it, or choose another folder") from None
    return file


def delete_abandoned(folders: Iterable[Path]) -> None:
    """Delete the folders whose process was killed: this user's, unlocked, and not made within the last minute."""
    for folder in folders if os.name == "posix" else ():
        with contextlib.suppress(OSError):
            about = folder.lstat()  # of a link that somebody else made, not of its target
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > 60:
                with lock_folder(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Flush the folder's entries, including the new name, to the disk."""
    if os.name != "posix":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
