"""How long tests wait for others: an upper bound for machines that are very busy, never a measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from placement.storage.backends.postgresql import PostgreSQL

PATIENCE_SECONDS = 300


def eventually(expected: Any, found: Callable[[], Any]) -> None:
    """Wait until that is what is found; nothing that another process writes is there at once."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (last := found()) != expected:
        assert time.monotonic() < deadline, f"still {last!r} and not {expected!r}"
        time.sleep(0.05)


@contextmanager
def unhurried() -> Iterator[None]:
    """Requests take the way of those that have time, however slow this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgreSQL, "_is_hurried", lambda _: False)
        yield
