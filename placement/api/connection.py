"""The connection of a request: whether its caller is still there."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

# gunicorn's name for the connected socket; other servers have none, and their callers count as staying.
_SOCKET = "gunicorn.socket"


def watch_of(environ: dict[str, Any]) -> Callable[[], bool] | None:
    """A function that tells whether the caller of this request has gone away; None where that is unknown."""
    connected = environ.get(_SOCKET)
    if not isinstance(connected, socket.socket):
        return None

    def is_gone() -> bool:
        waiting = select.poll()
        try:
            waiting.register(connected.fileno(), select.POLLIN)
            # What can be read is either the next request or the end.
            return bool(waiting.poll(0)) and not connected.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    return is_gone
