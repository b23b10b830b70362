"""A caller without a token stops no other caller, whatever bytes it sends where a credential is expected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import lane_server
from tests.hostile import Wire, page_session, request
from tests.patience import eventually
from tests.server import RunningServer, database_url, running_service

TOKEN = "token-of-the-administrator-" + "a" * 20
# How each header may hold a byte.
HEADERS = {
    "token": (b"X-Auth-Token: %b", b"X-Auth-Token: a%bb"),
    "basic": (b"Authorization: Basic %b", b"Authorization: Basic YTpi%b", b"Authorization: B%basic YTpi"),
    "bearer": (b"Authorization: Bearer %b", b"Authorization: %b"),
    "cookie": (b"Cookie: a=%b", b"Cookie: placement_session=t.%b", b'Cookie: placement_session="t.%b"'),
}
# These end a line, or may stand in none.
REFUSED_BY_THE_PARSER = {400}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    file = tmp_path_factory.mktemp("tokens") / "tokens.yaml"
    file.write_text(f"{TOKEN}: {{user: root, project: ops, roles: [admin]}}\n")
    file.chmod(0o600)
    environment = {"OS_API__AUTH_STRATEGY": "token", "OS_API__TOKENS_FILE": str(file)}
    with (
        database_url("sqlite") as url,
        running_service(url, workers=1, environment=environment) as server,
    ):
        yield server


def get(path: str, header: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b\r\n\r\n" % (path.encode(), header)


@pytest.mark.parametrize(
    ("path", "expected"), [("/traits", {401}), ("/ui/map", {303}), ("/ui/sign-in", {200})]
)
@pytest.mark.parametrize("header", HEADERS)
def test_each_byte_is_answered(guarded: RunningServer, header: str, path: str, expected: set[int]):
    workers = guarded.workers()
    for form in HEADERS[header]:
        for number in range(256):
            line = form % bytes([number])
            with Wire(guarded.url) as wire:
                status = wire.send(get(path, line)).answer().status
            may_be = expected | (REFUSED_BY_THE_PARSER if number < 32 or number == 127 else set())
            assert status in may_be, (line, status)
    with Wire(guarded.url) as wire:
        known = get("/resource_providers", f"X-Auth-Token: {TOKEN}".encode())
        assert wire.send(known).answer().status == 200
    assert guarded.workers() == workers
    assert "Traceback" not in guarded.log.read_text(errors="replace")


@pytest.mark.parametrize(("beside", "expected"), [(499, 200), (500, 303)])
def test_a_session_counts_among_as_many_cookies_as_a_browser_may_send(
    guarded: RunningServer, beside: int, expected: int
):
    """Parsing thousands of cookies would hold up the event loop, and so every other caller."""
    line = f"Cookie: {'a=1;' * beside}placement_session={page_session(guarded.url, TOKEN)}"
    with Wire(guarded.url) as wire:
        assert wire.send(get("/ui/map", line.encode())).answer().status == expected


ODD = {
    "basic": b"PUT /any HTTP/1.1\r\nHost: a\r\nAuthorization: Basic \xff\r\nContent-Length: %d\r\n\r\n%b",
    "cookie": b"PUT /ui/any HTTP/1.1\r\nHost: a\r\nCookie: a=\xff\r\nContent-Length: %d\r\n\r\n%b",
}


def is_answered(server: lane_server.Running) -> bool:
    """Whether a caller is that sends its request in two packets."""
    with Wire(server.url) as wire:
        whole = request("PUT", "/echo", b"x" * 1000, known="X-Auth-Token: known-other\r\n")
        wire.send(whole[:-500])
        # By the time another is answered the server has heard the first half.
        with Wire(server.url) as other:
            assert other.get("/").answer().status == 200
        return wire.send(whole[-500:]).answer().body == b"x" * 1000


@pytest.mark.parametrize("form", ODD)
def test_as_many_begun_requests_as_may_be_keep_no_other_from_being_answered(form: str, tmp_path: Path):
    log = tmp_path / "log"
    limits = {"most_senders": 20, "head_seconds": 600, "body_seconds": 600}
    with lane_server.running(log=log, **limits) as server, ExitStack() as stack:
        for _ in range(25):
            stack.enter_context(Wire(server.url)).send(ODD[form] % (10, b"x"))
        for _ in range(5):
            assert is_answered(server)
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("form", ODD)
def test_as_many_bytes_as_may_be_keep_no_other_from_being_answered(form: str, tmp_path: Path):
    log = tmp_path / "log"
    limits = {"most_buffered_bytes": 2**19, "body_seconds": 600}
    with lane_server.running(log=log, **limits) as server, ExitStack() as stack:
        senders = [stack.enter_context(Wire(server.url)) for _ in range(8)]
        for wire in senders:
            wire.send(ODD[form] % (130_000, b"x" * 120_000))
            assert is_answered(server)
        eventually(4, lambda: sum(wire.is_open() for wire in senders))
        assert "Traceback" not in log.read_text()


def test_a_refusal_that_fails_costs_the_refused_alone(tmp_path: Path):
    """Whatever else may go wrong in the log line of a victim, the newcomer stays."""
    file = tmp_path / "log"
    with lane_server.running(log=file, most_senders=3, body_seconds=600) as server, ExitStack() as stack:
        broken = request("PUT", "/no-line", b"x" * 10)[:-5]
        victims = [stack.enter_context(Wire(server.url)).send(broken) for _ in range(3)]
        eventually(True, lambda: all(wire.is_open() for wire in victims))
        for _ in range(3):
            assert is_answered(server)
        assert victims[0].ends()
    assert "a connection of" in file.read_text()


def test_a_thread_outlives_a_refusal_that_fails():
    """The lane has as many threads afterwards as before."""
    with lane_server.running(read_threads=1) as server:
        for _ in range(3):
            with Wire(server.url) as wire:
                assert wire.get("/no-line?fail=1").ends()
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
