"""Whether the sender of a request is on this machine.

Without authentication only callers on this machine are served. A web page of another site may send requests
to loopback, also through a name that points there (DNS rebinding), and a proxy on this machine may forward
requests of the whole network.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from placement.engine.domain.identifiers import is_loopback

# Headers of proxies: Via and Forwarded of RFC 9110 and 7239, and what products call the address of a client,
# such as X-Real-IP, CF-Connecting-IP, X-Azure-ClientIP, X-Envoy-External-Address.
_OF_PROXIES = re.compile(
    r"HTTP_(VIA|FORWARDED|CDN_LOOP|X_VARNISH|.*_FORWARDED_.*|X_ENVOY_.*"
    r"|(.*_)?(CLIENT|REAL|REMOTE|CONNECTING|SOCKET|USER|SOURCE|PROXYUSER|ORIGIN|EXTERNAL)_?(IP|ADDR|ADDRESS))"
)
_ADVICE = "with [api] auth_strategy noauth2 only callers on this machine are believed"


def objection(environ: Mapping[str, Any], allowed_origins: Collection[str] = ()) -> str | None:
    """Return why the sender of a WSGI request may not be on this machine, None if it certainly is.

    `allowed_origins`: sites with pages that may call, as [cors] allowed_origin names them.
    """
    if not is_loopback(environ.get("REMOTE_ADDR", "")):
        return f"The request comes from another address; {_ADVICE}."
    passed_on = sorted(key for key in environ if key.startswith("HTTP_") and _is_of_proxy(key))
    if passed_on:
        header = passed_on[0].removeprefix("HTTP_").replace("_", "-").title()
        return f"The header {header} says that a proxy passed the request on; {_ADVICE}."
    host = environ.get("HTTP_HOST")
    if host is not None and not is_loopback(_name(host)):
        return f"The header Host names another host than this machine's loopback; {_ADVICE}."
    origin = environ.get("HTTP_ORIGIN")
    # Browsers name the site of the page that sends the request; `null` is a page without a site.
    if (
        origin is not None
        and origin not in allowed_origins
        and not is_loopback(_name(origin.partition("://")[2]))
    ):
        return f"The header Origin names another site than this machine's loopback; {_ADVICE}."
    # Browsers send no Origin with a GET for an image of another site. A link that a person follows is no such
    # GET: the answer is a page of its own, which the other site cannot read.
    is_followed = environ.get("REQUEST_METHOD") == "GET" and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    is_foreign = environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and origin not in allowed_origins
    if is_foreign and not is_followed:
        return f"The header Sec-Fetch-Site says that a page of another site asks; {_ADVICE}."
    return None


# Clients send few different headers.
@lru_cache(maxsize=1024)
def _is_of_proxy(key: str) -> bool:
    return _OF_PROXIES.fullmatch(key) is not None


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def _name(host: str) -> str:
    """Return a host without its port, from a Host header or an origin; empty if it is malformed."""
    try:
        return "" if set("@/?#") & set(host) else urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
