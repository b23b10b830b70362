"""Whatever bytes arrive, the real server answers or hangs up, never fails, and serves the next caller."""

from __future__ import annotations

import random
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer
from tests.service import Service
from tests.test_http_never_fails_on_odd_input import ODD_TEXTS, PARAMETERS

RAW = [
    b"", b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"NaN", b'{"a":NaN}', b'{"a":1e999}', b"[" * 100_000,
    b'{"a":' * 3000, b"[" * 1000 + b"]" * 1000, b'"' + b"x" * 300_000 + b'"', b'{"a":1,"a":2}',
    b'"\\ud800"', b"null", b"0", b"\0",
]  # fmt: skip

REQUESTS = 250
TARGETS = [
    "/",
    "/resource_providers",
    "/allocation_candidates",
    "/usages",
    "/reshaper",
    "/allocations/x",
    "/ext/v1/clusters/x/nodes/y",
    "*",
    "http://elsewhere/traits",
    "//",
    "/%00",
    "/" + "a" * 9_000,
]
METHODS = [
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G\x00T",
    "X" * 200,
    "",
]
HEADERS = [
    b"Host: x",
    b"Host: ",
    b"Host: [::",
    b"X-Auth-Token: admin",
    b"X-Auth-Token: \xff\xfe",
    b"OpenStack-API-Version: placement 1.39",
    b"OpenStack-API-Version: placement \xc3\xa4",
    b"Content-Type: application/json",
    b"Content-Type: ;;;",
    b"Content-Length: 7",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 1, 1",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: nonsense",
    b"Expect: 100-continue",
    b"Upgrade: websocket",
    b"Accept: ;;q=,",
    b"Range: bytes=5-1",
    b"Connection: keep-alive, close, x",
    b": no name",
    b"no colon",
    b" folded: line",
    b"X" * 9_000 + b": long",
]
# Refusing what HTTP calls not implemented or another version is no failure.
NO_FAILURES = {501, 505}
STATUS = re.compile(rb"^HTTP/1\.[01] ([0-9]{3})", re.MULTILINE)


def odd_request(dice: random.Random) -> bytes:
    """Garbage, or a request with something odd in some of its places."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.randint(0, 400))
    target = dice.choice(TARGETS)
    if dice.random() < 0.5:
        target += f"?{dice.choice(PARAMETERS)}={dice.choice(ODD_TEXTS)}"
    version = dice.choice(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP", ""])
    method = dice.choice(METHODS if dice.random() < 0.4 else METHODS[:4])
    line = f"{method} {target} {version}".encode(errors="surrogateescape")
    headers = dice.sample(HEADERS, dice.randint(0, 6))
    body = dice.choice([b"", b"5\r\nabcde\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffff\r\n", *RAW])
    end = dice.choice([b"\r\n", b"\r\n", b"\r\n", b"\n"])
    return end.join([line, *headers, b"", b""]) + body


def answered(server: RunningServer, sent: bytes) -> list[int]:
    """The statuses of what comes back until the server hangs up; none if it does so at once."""
    address = urlsplit(server.url)
    received = b""
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as wire:
        # The server may hang up in the middle of what it does not want.
        with suppress(OSError):
            wire.sendall(sent)
            wire.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while piece := wire.recv(65536):
                received += piece
    return [int(status) for status in STATUS.findall(received)]


@pytest.mark.parametrize("seed", range(4))
def test_no_bytes_make_it_fail_and_the_next_search_is_answered(served: RunningServer, seed: int):
    # The same numbers each time: a failure must be found again.
    dice = random.Random(seed)
    workers = served.workers()
    for _ in range(REQUESTS):
        sent = odd_request(dice)
        failed = [status for status in answered(served, sent) if status >= 500 and status not in NO_FAILURES]
        assert not failed, (failed, sent[:500])
    search = Service(served.url).call("GET", "/allocation_candidates", query=[("resources", "VCPU:1")])
    assert search.status == 200, search.body
    assert served.workers() == workers
    assert "Traceback" not in served.log.read_text(errors="replace")
