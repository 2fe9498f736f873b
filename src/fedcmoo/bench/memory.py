"""Measure the peak memory of processes, which only Linux reports."""

import ctypes
import sys
from pathlib import Path

PROCESS = Path("/proc/self")


def reset_peak() -> int | None:
    """Start a new measurement of the peak memory of this process; returns the current memory, None if unknown.

    Freed memory is returned to the system first, since memory that is kept and reused would not be counted.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    try:
        (PROCESS / "clear_refs").write_text("5")
        return status("VmRSS")
    except OSError:
        return None


def peak_bytes(with_children: bool = False) -> int | None:
    """The peak memory of this process since `reset_peak`; None if the system does not report it.

    Args:
        with_children: add the peak of each child process; shared pages count for each of them.
    """
    try:
        processes = [PROCESS, *(Path(f"/proc/{pid}") for pid in (children(PROCESS) if with_children else ()))]
        return sum(status("VmHWM", process / "status") for process in processes)
    except OSError:
        return None


def children(process: Path) -> list[int]:
    """The numbers of the child processes of a process, given by its folder in /proc."""
    return [int(pid) for task in (process / "task").iterdir() for pid in (task / "children").read_text().split()]


def status(name: str, file: Path = PROCESS / "status") -> int:
    """An entry of a process's status in bytes; 0 if it has none."""
    lines = [line for line in file.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0
