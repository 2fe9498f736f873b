"""Measure the peak memory of a block of code."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


class PeakMemory:
    """Measures the peak memory of this process inside the block, beyond what it used before.

    `bytes` is None on systems other than Linux, which do not report it. Memory that was freed before and not yet
    returned to the system is reused unnoticed, so small amounts are reported as zero.

    >>> with PeakMemory() as peak:
    ...     block = bytearray(50_000_000)
    >>> peak.bytes is None or peak.bytes > 40_000_000
    True
    """

    bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        _give_back_freed_memory()
        try:
            RESET.write_text("5")  # the peak is now the current memory
            self._before = _status("VmRSS")
        except OSError:
            self._before = None
        return self

    def __exit__(self, *error: object) -> None:
        peak = None if self._before is None else _status("VmHWM")
        if peak is not None and self._before is not None:
            self.bytes = max(0, peak - self._before)


def reset_peak() -> None:
    """Reset the peak that `peak_bytes` reports; does nothing where the system does not support it."""
    _give_back_freed_memory()
    with contextlib.suppress(OSError):
        RESET.write_text("5")


def peak_bytes(with_children: bool = False) -> int | None:
    """The peak memory of this process since `reset_peak`; None if the system does not report it.

    Args:
        with_children: add the peak of each child process; shared pages count for each of them.
    """
    try:
        children = _children(STATUS.parent) if with_children else []
        statuses = [STATUS, *(Path(f"/proc/{pid}/status") for pid in children)]
        return sum(_status("VmHWM", status) or 0 for status in statuses)
    except OSError:
        return None


def private_bytes(pid: int | None = None) -> int:
    """The memory of a process (by default this one) and its descendants, without shared pages; 0 if unknown."""
    process = Path("/proc", "self" if pid is None else str(pid))
    try:
        children, own = _children(process), _status("RssAnon", process / "status") or 0
    except OSError:  # it has ended, or the system has no such files
        return 0
    return own + sum(private_bytes(child) for child in children)


def _children(process: Path) -> list[int]:
    return [int(pid) for task in (process / "task").iterdir() for pid in (task / "children").read_text().split()]


def _give_back_freed_memory() -> None:
    """Return freed memory to the system, since memory that workers keep and reuse would not be counted."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _status(name: str, status: Path = STATUS) -> int | None:
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
