"""`placement serve` greets when it serves; if it cannot, it says why and ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.server import database_url, free_port

_ROOT = Path(__file__).resolve().parents[1]


def served(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, which must end by itself."""
    with database_url("sqlite") as connection:
        return subprocess.run(
            [sys.executable, "-m", "placement.operations", "serve", "--database", connection, *arguments],
            cwd=_ROOT,
            env={**os.environ, "OS_API__AUTH_STRATEGY": "noauth2", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )


def test_workers_that_cannot_load_end_the_service():
    ended = served(
        "--port", str(free_port()), OS_API__AUTH_STRATEGY="token", OS_API__TOKENS_FILE="/nonexistent/tokens"
    )
    assert ended.returncode != 0
    assert "/nonexistent/tokens" in ended.stderr
    assert "listens" not in ended.stdout


def test_a_port_that_somebody_has_is_named_with_its_option():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = served("--port", str(port))
    assert ended.returncode != 0
    assert f"--port: another program listens on 127.0.0.1, port {port}" in ended.stderr
    assert "listens on http" not in ended.stdout


def test_no_workers_are_no_service():
    ended = served("--workers", "0")
    assert ended.returncode == 2
    assert "must be a whole number from 1 on" in ended.stderr
