"""Download data sets from their official sources, with resumption and checksum verification.

A file is written to `NAME.part` and renamed once its checksum is verified, so any file without `.part` is complete.
"""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from fedcmoo.data.catalogue import DATA_SETS, NEEDED_BY, RemoteFile
from fedcmoo.data.folder import MissingDataError, data_folder, present
from fedcmoo.settings import SettingsError, suggestion

Report = Callable[[str, int, int | None], None]
"""Progress callback: a file's path in the data folder, the bytes so far, and its total bytes (None if unknown)."""

CHUNK = 1 << 18
TIMEOUT = 30.0
TRIES = 5
"""Consecutive failures of a file without progress after which the next source is tried."""


class DownloadError(OSError):
    """Raised if a file could not be downloaded; the message says from where and why."""


class ManualDownloadError(MissingDataError):
    """Raised for a data set that users must download themselves; the message says how."""


def download(name: str, folder: Path | None = None, progress: Report | None = None) -> list[Path]:
    """Download a data set, or everything that a ready-made problem needs. Existing files are kept.

    Args:
        name: of a data set or of a ready-made problem, such as "mnist" or "multimnist".
        folder: the data folder; by default, `data_folder()`.
        progress: called with (file, bytes so far, bytes in all) as files arrive.

    Returns:
        the files that were downloaded.

    Raises:
        DownloadError: if none of a file's sources delivers it with the correct checksum.
        ManualDownloadError: if the data set must be downloaded by hand.
    """
    home = data_folder(folder)
    if name not in DATA_SETS and name not in NEEDED_BY:
        known = {**DATA_SETS, **NEEDED_BY}
        raise SettingsError(f"{name!r} is neither a data set nor a problem{suggestion(name, known)}")
    arrived = []
    for data_set in [DATA_SETS[n] for n in NEEDED_BY.get(name, (name,))]:
        if not data_set.missing(home):
            continue
        if not data_set.files:
            raise ManualDownloadError(data_set.instructions.format(folder=home))
        for file in data_set.files:
            if present(home, (file.path, file.path.removesuffix(".gz"))) is None:
                fetch(file, home, progress)
                arrived.append(home / file.path)
    return arrived


def fetch(file: RemoteFile, folder: Path, progress: Report | None = None, pause: float = 1.0) -> None:
    """Download one file from the first source that delivers it completely.

    After a failure it waits for `pause` seconds, and twice as long after each further one.
    """
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    failures = []
    # A part left by an earlier call may be corrupt, which only the checksum shows: then retry the first source.
    again = file.urls[:1] if part.exists() else ()
    for url in (*again, *file.urls):
        try:
            _retrieve(url, part, lambda done, total: progress(file.path, done, total) if progress else None, pause)
            _check(part, file.md5)
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
            continue
        os.replace(part, target)
        return
    raise DownloadError(f"{file.path} could not be downloaded. " + "; ".join(failures))


def _check(part: Path, md5: str) -> None:
    """Delete a file with a wrong checksum, since the wrong part cannot be identified."""
    with part.open("rb") as content:
        found = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        part.unlink()
        raise DownloadError(f"its MD5 sum must be {md5}, but is {found}")


def _retrieve(url: str, part: Path, report: Callable[[int, int | None], None], pause: float) -> None:
    """Download to `part`, continuing a partial file, until it is complete; retry after interruptions."""
    failures, furthest = 0, 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, before, report)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and before:
                # The partial file is complete (the checksum will show) or belongs to another file.
                return
            if error.code < 500 and error.code != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise
            problem: Exception = error
        except (OSError, http.client.HTTPException) as error:
            problem = error
        arrived = part.stat().st_size if part.exists() else 0
        failures = 1 if arrived > max(before, furthest) else failures + 1
        furthest = max(furthest, arrived)
        if failures >= TRIES:
            raise DownloadError(f"gave up after {TRIES} tries without progress, the last with: {problem}")
        time.sleep(pause * 2 ** (failures - 1))


def _continue(url: str, part: Path, start: int, report: Callable[[int, int | None], None]) -> None:
    """One request; raises if the connection ends before the announced length has arrived."""
    request = urllib.request.Request(url, headers={"User-Agent": "fedcmoo"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            # This server does not support ranges and sends the whole file again.
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        done = start
        with part.open("ab" if start else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                report(done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)
