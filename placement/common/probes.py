"""Answers to probes: /livez and /readyz as Kubernetes has them, /healthcheck as oslo.middleware has it.

They are texts made of earlier findings, so that the thread that receives requests can answer at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import parse_qs


class Check(NamedTuple):
    """A check of one thing that has to be well, and its finding."""

    name: str
    ok: bool
    detail: str


LIVE, READY, HEALTHCHECK, METRICS = "/livez", "/readyz", "/healthcheck", "/metrics"
PATHS = frozenset({LIVE, READY, HEALTHCHECK})
METHODS = frozenset({"GET", "HEAD"})
# Monitoring asks for these, without credentials and past requests that wait.
OPEN_PATHS = frozenset({"", "/", METRICS}) | PATHS
# A process that answers is alive.
_ALIVE = [Check("ping", True, "")]
_WELL = "OK"
_PLAIN, _HTML, _JSON = "text/plain", "text/html", "application/json"
# In the order in which oslo.middleware prefers them.
_OFFERED = (_PLAIN, _HTML, _JSON)
_QUALITY = re.compile(r";\s*q=([0-9]+(?:\.[0-9]*)?)")


class Probe(NamedTuple):
    """An answer; `content_type` without its charset, which is UTF-8."""

    status: int
    content_type: str
    body: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers; an answer without a body has no length."""
        size = {"Content-Length": str(len(self.body.encode()))} if self.body else {}
        return {
            "Content-Type": f"{self.content_type}; charset=UTF-8",
            **size,
            "Cache-Control": "no-store",
        }


def answer(method: str, path: str, query: str, accept: str, checks: Callable[[], Sequence[Check]]) -> Probe:
    """Answer a request for one of PATHS by one of METHODS; `checks` is called except for liveness."""
    if path == HEALTHCHECK:
        return _healthcheck(method, accept, checks())
    found = _ALIVE if path == LIVE else checks()
    well, body = all(check.ok for check in found), "ok"
    if not well or "verbose" in parse_qs(query, keep_blank_values=True):
        lines = [
            f"[{'+' if check.ok else '-'}]{check.name} {'ok' if check.ok else 'failed'}"
            + (f": {check.detail}" if check.detail else "")
            for check in found
        ]
        body = "\n".join([*lines, f"{path[1:]} check {'passed' if well else 'failed'}", ""])
    return Probe(200 if well else 503, _PLAIN, "" if method == "HEAD" else body)


def _healthcheck(method: str, accept: str, checks: Sequence[Check]) -> Probe:
    failed = [f"{check.name}: {check.detail}" for check in checks if not check.ok]
    status = 503 if failed else 200
    if method == "HEAD":
        return Probe(503 if failed else 204, _PLAIN, "")
    reasons = failed or [_WELL]
    kind = _preferred(accept)
    if kind == _JSON:
        return Probe(status, kind, json.dumps({"detailed": False, "reasons": reasons}, indent=4))
    if kind == _HTML:
        return Probe(status, kind, _page(reasons))
    return Probe(status, kind, "\n".join(reasons))


def _preferred(accept: str) -> str:
    """Return the offered media type that the header prefers; plain text without a header or a match."""
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        name = part.partition(";")[0].strip().lower()
        quality = _QUALITY.search(part)
        if name:
            qualities[name] = float(quality[1]) if quality else 1.0

    def of(offered: str) -> float:
        ranges = (offered, f"{offered.partition('/')[0]}/*", "*/*")
        return next((qualities[each] for each in ranges if each in qualities), 0.0)

    return max(_OFFERED, key=of)


def _page(reasons: Sequence[str]) -> str:
    rows = "\n".join(f"<TR>\n\n    <TD>{escape(reason)}</TD>\n\n</TR>" for reason in reasons)
    return (
        "<HTML>\n<HEAD><TITLE>Healthcheck Status</TITLE></HEAD>\n<BODY>\n\n"
        f"<H2>Result of {len(reasons)} checks:</H2>\n"
        f'<TABLE bgcolor="#ffffff" border="1">\n<TBODY>\n<TR>\n\n<TH>\nReason\n</TH>\n\n</TR>\n{rows}\n'
        "</TBODY>\n</TABLE>\n<HR></HR>\n\n</BODY>\n</HTML>"
    )
