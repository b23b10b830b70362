"""How long tests wait for others: an upper bound for machines that are very busy, never a measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 300


def eventually(expected: Any, found: Callable[[], Any]) -> None:
    """Wait until that is what is found; nothing that another process writes is there at once."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (last := found()) != expected:
        assert time.monotonic() < deadline, f"still {last!r} and not {expected!r}"
        time.sleep(0.05)
