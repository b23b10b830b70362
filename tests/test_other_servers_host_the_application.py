"""Behind plain gunicorn and behind granian the application bounds bodies and callers by itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import unique
from tests.hostile import Wire, chunked, request
from tests.server import await_answer, database_url, free_port

JSON, CHUNKED = "Content-Type: application/json", "Transfer-Encoding: chunked"


SERVERS = {
    "gthread": (
        *("-m", "gunicorn", "-k", "gthread", "--threads", "4", "--no-control-socket"),
        *("--log-level", "critical", "-b", "127.0.0.1:{port}"),
    ),
    "granian": (
        *("-m", "granian", "--interface", "wsgi", "--blocking-threads", "4"),
        *("--no-ws", "--log-level", "critical", "--port", "{port}"),
    ),
}


def _speaks_http_2() -> bool:
    curl = shutil.which("curl")
    return (
        curl is not None
        and "HTTP2" in subprocess.run([curl, "-V"], capture_output=True, text=True, check=True).stdout
    )


@pytest.fixture(scope="module", params=SERVERS)
def hosted(request: pytest.FixtureRequest) -> Iterator[str]:
    """The service behind the threads of another server."""
    port = free_port()
    arguments = [each.format(port=port) for each in SERVERS[request.param]]
    with database_url("sqlite") as connection:
        process = subprocess.Popen(
            [sys.executable, *arguments, "placement.wsgi:application"],
            cwd=Path(__file__).resolve().parents[1],
            env={
                **os.environ,
                "OS_PLACEMENT_DATABASE__CONNECTION": connection,
                "OS_API__AUTH_STRATEGY": "noauth2",
                "OS_API__MAX_REQUEST_BODY_BYTES": "100000",
                "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS": "False",
            },
        )
        try:
            await_answer(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.parametrize("length", [True, False])
def test_bodies_are_bounded(hosted: str, length: bool):
    more = [JSON] if length else [JSON, CHUNKED]
    name = unique().encode()
    for body, status in (
        (b'{"name": "%b"}' % name, 200),
        (b'{"name": "%b"}' % name + b" " * 100_000, 413),
        (b'{"name": "%b"}' % name + b" " * 90_000 + b"garbage", 400),
        (b"[" * 90_000, 400),
    ):
        with Wire(hosted) as wire:
            sent = body if length else chunked(body[:7], body[7:])
            wire.send(request("POST", "/resource_providers", sent, *more, length=length))
            assert wire.answer().status == status, body[:100]


def test_chunked_settings_of_clusters_are_read(hosted: str):
    body = chunked(b'{"description":', b' "kept"}')
    with Wire(hosted) as wire:
        wire.send(request("PUT", f"/ext/v1/clusters/{unique()}", body, JSON, CHUNKED, length=False))
        assert wire.answer().json["description"] == "kept"


@pytest.mark.skipif(not _speaks_http_2(), reason="NOT RUN: no curl here speaks HTTP/2")
@pytest.mark.parametrize("hosted", ["granian"], indirect=True)
def test_bodies_without_a_length_are_read_over_http_2(hosted: str):
    command = ["curl", "--silent", "--http2-prior-knowledge", "-X", "POST", "-T", "-", "-H", JSON]
    command += ["-H", "X-Auth-Token: admin", "-w", " %{http_code}", f"{hosted}/resource_providers"]
    for body, status in ((f'{{"name": "{unique()}"}}', "201"), (" " * 200_000, "413")):
        done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
        assert done.stdout.endswith(f" {status}"), done
