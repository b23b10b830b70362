"""What a worker asks of the operating system for its process."""

from __future__ import annotations

import ctypes
import resource
import signal

# prctl.h: the signal a process gets when its parent ends.
_PARENT_DEATH_SIGNAL = 1
_FILES_FOR_OTHERS = 256


def end_with_parent() -> None:
    """Have the system tell this process when the master is gone, however that happens; Linux only."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def room_for_connections(wanted: int) -> int:
    """How many connections the system's limit of open files allows; a body may need a file, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + _FILES_FOR_OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (soft - _FILES_FOR_OTHERS) // 2))


def end_in_any_case(seconds: float) -> None:
    """End the process a second later than that even if no thread lets the others run."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
