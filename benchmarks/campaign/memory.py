"""The memory of a process and its descendants."""

from __future__ import annotations

from pathlib import Path

from fedcmoo.bench.memory import children, status


def private_bytes(pid: int | None = None) -> int:
    """The memory of a process (by default this one) and its descendants, without shared pages; 0 if unknown."""
    process = Path("/proc", "self" if pid is None else str(pid))
    try:
        pids, own = children(process), status("RssAnon", process / "status")
    except OSError:  # it has ended, or the system has no such files
        return 0
    return own + sum(private_bytes(child) for child in pids)
