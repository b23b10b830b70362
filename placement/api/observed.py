"""Counts requests by the rule of their route, and times them until the head of their answer."""

from __future__ import annotations

import time
from typing import Any

from flask import request

from placement.metrics.catalog import REQUEST_SECONDS, REQUESTS

# Where the application notes the rule in the WSGI environment, for the layer around it.
_RULE_KEY = "placement.rule"
_NO_RULE = "none"
_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_Key = tuple[str, str, str]


def note_rule() -> None:
    """Note which rule the request at hand follows; a path that has none is not told from others."""
    if request.url_rule is not None:
        request.environ[_RULE_KEY] = request.url_rule.rule


class Observed:
    """The figures of requests; looking a figure up by its labels takes longer than to count."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[Any, Any]] = {}

    def count(self, environ: dict[str, Any], status: str, arrived: float) -> None:
        """One request that arrived then, in seconds of time.monotonic(), is answered now."""
        method = environ["REQUEST_METHOD"]
        # Clients may send any word.
        key = (environ.get(_RULE_KEY, _NO_RULE), method if method in _METHODS else "other", status)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = REQUESTS.labels(*key), REQUEST_SECONDS.labels(*key[:2])
        found[0].inc()
        found[1].observe(time.monotonic() - arrived)
