"""The memory of this process, as the system counts it."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return to the system what was freed, which only glibc can; else it stays for the next that needs it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
