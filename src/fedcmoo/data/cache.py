"""Arrays cached on disk: a folder of .npy files, named by a checksum of their sources and settings."""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcmoo.files import DamagedError, delete_abandoned, lock_folder, reading

Arrays = dict[str, NDArray[Any]]

NAMES = "names.json"
"""The file beside the arrays that lists them."""

log = logging.getLogger(__name__)


def cached(
    folder: Path, name: str, settings: Mapping[str, str | int], sources: Sequence[Path], make: Callable[[], Arrays]
) -> Arrays:
    """Return the arrays of `make`, from disk if it was called before with these settings and sources.

    They are kept in `<folder>/composed/<name>-<key>/`, where the key is a checksum of the settings and of the
    source files' content. A folder appears there complete or not at all, also when several processes make it at
    once. The arrays are mapped into memory (copy on write), so that worker processes share one copy. If the folder is
    not writable, nothing is cached and no error is raised.
    """
    home = folder / "composed" / f"{name}-{_key(settings, sources)}"
    if home.is_dir():
        try:
            return _load(home)
        except DamagedError as error:
            log.warning("%s is made again: %s", name, error)
            shutil.rmtree(home, ignore_errors=True)
    arrays = make()
    try:
        _write(home, arrays)
    except OSError as error:
        log.warning("%s is made again each time, since %s cannot be written: %s", name, home, error)
        return arrays
    return _load(home)


def _load(home: Path) -> Arrays:
    with reading(home):
        names = json.loads((home / NAMES).read_text())
        return {name: np.load(home / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in names}


def _key(settings: Mapping[str, str | int], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(json.dumps(dict(sorted(settings.items()))).encode())
    for source in sources:
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _write(home: Path, arrays: Arrays) -> None:
    """Write into a temporary folder beside `home`, then rename it; those of killed processes are deleted."""
    home.parent.mkdir(parents=True, exist_ok=True)
    delete_abandoned(home.parent.glob(".part-*"))
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=home.parent))
    lock = lock_folder(part)
    try:
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array, allow_pickle=False)
        (part / NAMES).write_text(json.dumps(list(arrays)))
        part.chmod(0o755)
        os.rename(part, home)
    except OSError:
        # Another process may have put the same arrays there first.
        if not home.is_dir():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.close()
