"""The connection of a request: whether its sender is still there, and whether it is on this machine.

Without authentication only callers on this machine are served. A web page of another site may send requests
to loopback, also through a name that points there (DNS rebinding), and a proxy on this machine may forward
requests of the whole network.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from placement.domain.identifiers import is_loopback

# gunicorn's name for the connected socket; other servers have none, and their callers count as staying.
_SOCKET = "gunicorn.socket"
_PROXIES = (
    "HTTP_CF_CONNECTING_IP",
    "HTTP_FORWARDED",
    "HTTP_TRUE_CLIENT_IP",
    "HTTP_VIA",
    "HTTP_X_CLIENT_IP",
    "HTTP_X_ORIGINAL_FORWARDED_FOR",
    "HTTP_X_REAL_IP",
)
_PROXIES_START = "HTTP_X_FORWARDED_"
_ADVICE = "with [api] auth_strategy noauth2 only callers on this machine are believed"


def watch_of(environ: dict[str, Any]) -> Callable[[], bool] | None:
    """A function that tells whether the caller of this request has gone away; None where that is unknown."""
    connected = environ.get(_SOCKET)
    if not isinstance(connected, socket.socket):
        return None

    def is_gone() -> bool:
        waiting = select.poll()
        if isinstance(connected, ssl.SSLSocket):
            # What waits to be read may be the client's farewell, which cannot be told from a request.
            waiting.register(connected.fileno(), select.POLLRDHUP)
            return bool(waiting.poll(0))
        try:
            waiting.register(connected.fileno(), select.POLLIN)
            # What can be read is either the next request or the end.
            return bool(waiting.poll(0)) and not connected.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    return is_gone


def objection(environ: Mapping[str, Any], allowed_origins: Collection[str] = ()) -> str | None:
    """Return why the sender of a WSGI request may not be on this machine, None if it certainly is.

    `allowed_origins`: sites whose pages may call, as [cors] allowed_origin names them.
    """
    if not is_loopback(environ.get("REMOTE_ADDR", "")):
        return f"The request comes from another address; {_ADVICE}."
    passed_on = sorted(key for key in environ if key in _PROXIES or key.startswith(_PROXIES_START))
    if passed_on:
        header = passed_on[0].removeprefix("HTTP_").replace("_", "-").title()
        return f"The header {header} says that a proxy passed the request on; {_ADVICE}."
    host = environ.get("HTTP_HOST")
    if host is not None and not is_loopback(_name(host)):
        return f"The header Host names another host than this machine's loopback; {_ADVICE}."
    origin = environ.get("HTTP_ORIGIN")
    # Browsers name the site whose page sends the request; `null` is a page without a site.
    if (
        origin is not None
        and origin not in allowed_origins
        and not is_loopback(_name(origin.partition("://")[2]))
    ):
        return f"The header Origin names another site than this machine's loopback; {_ADVICE}."
    return None


# The same few callers come again and again.
@lru_cache(maxsize=1024)
def _name(host: str) -> str:
    """The Host header without its port; empty if it is malformed."""
    try:
        return "" if set("@/?#") & set(host) else urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
