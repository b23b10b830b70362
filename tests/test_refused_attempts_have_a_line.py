"""Requests that are refused before the application have lines with method, path and user, as all others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests import lane_server
from tests.client import unique
from tests.hostile import Wire, page_session, request
from tests.patience import eventually
from tests.server import database_url, running_service

KNOWN = "X-Auth-Token: known-greedy\r\n"


@contextmanager
def logged(tmp_path: Path, **limits: float) -> Iterator[tuple[lane_server.Running, Path]]:
    """A server and the file with its log."""
    file = tmp_path / "log"
    with lane_server.running(log=file, **limits) as server:
        with Wire(server.url) as wire:
            assert wire.send(request("PUT", "/known", b"", known=KNOWN)).answer().status == 200
        yield server, file


def chunked(method: str, path: str, *more: str) -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", KNOWN.strip(), *more, "", ""])


REFUSED = {
    413: chunked("PUT", "/resource_providers/x", "Content-Length: 99999999"),
    501: chunked("PUT", "/resource_providers/x", "Transfer-Encoding: unknown"),
    431: chunked("PUT", "/resource_providers/x", *(f"X-{number}: {'x' * 8000}" for number in range(20))),
    408: "PUT /resource_providers/x HTTP/1.1\r\nHost: localhost\r\n",
    400: "PUT /resource_providers/x HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("status", REFUSED)
def test_what_the_event_loop_refuses_is_an_attempt(tmp_path: Path, status: int):
    with logged(tmp_path, head_seconds=2) as (server, file), Wire(server.url) as wire:
        assert wire.send(REFUSED[status]).answer().status == status
        # The user is known where the head could be read.
        user = "known-greedy" if status == 413 else "-"
        line = f'user: {user} project: - address: 127.0.0.1 "PUT /resource_providers/x" status: {status}'
        eventually(True, lambda: f"placement.audit {line}" in file.read_text())
        line = f'"PUT /resource_providers/x" user: {user}'
        assert re.search(rf"refused a request of .*: {status} .* {line}", file.read_text())


def test_what_waits_too_long_or_is_too_much_is_an_attempt(tmp_path: Path):
    """429 beyond the quota of a user, 503 at once where too many wait and later where the time is up."""
    limits = {"write_threads": 1, "most_waiting": 2, "requests_per_caller": 4, "request_seconds": 3}
    with logged(tmp_path, **limits) as (server, file), ExitStack() as stack:
        first = unique()
        for name in (first, *(unique() for _ in range(6))):
            wire = stack.enter_context(Wire(server.url))
            wire.send(request("DELETE", f"/traits/T?sleep=5&name={name}", b"", known=KNOWN))
            eventually(True, lambda: server.has_noted("begun", first))
        expected = 'user: known-greedy project: - address: 127.0.0.1 "DELETE /traits/T?sleep=5&name='
        eventually(6, lambda: len(re.findall(re.escape(expected) + r'[\w-]+" status: 503', file.read_text())))
    with logged(tmp_path, requests_per_caller=1) as (server, file), ExitStack() as stack:
        server.hold(stack, "DELETE", KNOWN, "/traits/T?held=all")
        with Wire(server.url) as wire:
            assert wire.send(request("DELETE", "/traits/U", b"", known=KNOWN)).answer().status == 429
        eventually(True, lambda: '"DELETE /traits/U" status: 429' in file.read_text())


def test_reading_is_no_attempt_and_nothing_forges_a_line(tmp_path: Path):
    with logged(tmp_path) as (server, file):
        for head in (
            chunked("GET", "/traits", "Content-Length: 99999999"),
            chunked("POST", "/ext/v1/plans", "Content-Length: 99999999"),
            "PUT /a\rplacement.audit\x1b[2Jforged HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
            "\x00\x01 /garbage HTTP/1.1\r\n\r\n",
        ):
            with Wire(server.url) as wire:
                assert wire.send(head).answer().status >= 400
        eventually(4, lambda: file.read_text().count("refused a request of"))
        text = file.read_text()
        assert '"GET /traits" status' not in text
        assert '"POST /ext/v1/plans" status' not in text
        assert "\x1b" not in text
        assert '"- -" status: 400' in text


def test_the_line_of_a_new_session_has_its_user(tmp_path: Path):
    """Also where the first request of the session is refused before the application sees it."""
    tokens, token = tmp_path / "tokens.yaml", "token-of-the-administrator-" + "a" * 20
    tokens.write_text(f"{token}: {{user: root, project: ops, roles: [admin]}}\n")
    tokens.chmod(0o600)
    environment = {"OS_API__AUTH_STRATEGY": "token", "OS_API__TOKENS_FILE": str(tokens)}
    with (
        database_url("sqlite") as url,
        running_service(url, workers=1, environment=environment) as server,
        Wire(server.url) as wire,
    ):
        cookie = f"Cookie: placement_session={page_session(server.url, token)}\r\n"
        head = "POST /ui/fits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n"
        assert wire.send(f"{head}{cookie}\r\n").answer().status == 413
        line = 'user: root project: ops address: 127.0.0.1 "POST /ui/fits" status: 413'
        eventually(True, lambda: line in server.log.read_text())
