"""`placement serve --demo`: loads the examples once, keeps data over restarts, and its printed calls work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import requests

from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, running_service

CURL = Path(__file__).parent / "curl.py"
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


def get(url: str, path: str) -> dict:
    session = requests.Session()
    session.trust_env = False
    answer = session.get(url + path, headers=HEADERS, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.json()


def clusters_of(url: str) -> list[dict]:
    return get(url, "/ext/v1/clusters")["clusters"]


def run(call: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A printed call as a person pastes it; a machine with only Python gets a stand-in for curl."""
    environment = dict(os.environ)
    if shutil.which("curl") is None:
        stand_in = directory / "curl"
        stand_in.write_text(f"#!{sys.executable}\n{CURL.read_text()}")
        stand_in.chmod(0o755)
        environment["PATH"] = f"{directory}:{environment['PATH']}"
    return subprocess.run(
        ["sh", "-c", call], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def printed_calls(log: str) -> list[str]:
    """The commands of the greeting: paragraphs that are indented, below the numbered questions."""
    return [block for block in re.split(r"\n\s*\n", log) if re.match(r"   \S", block) and "curl" in block]


def awaited_calls(log: Path) -> list[str]:
    """The same, when the master has written them: workers may answer before."""
    deadline = time.monotonic() + 60
    while len(calls := printed_calls(log.read_text())) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    return calls


def test_examples_are_loaded_printed_calls_work_and_data_stays(tmp_path: Path) -> None:
    with database_url("sqlite", migrated=False) as connection:
        with running_service(connection, arguments=["--demo"]) as server:
            clusters = {entry["name"]: entry["nodes"] for entry in clusters_of(server.url)}
            assert clusters == {"batch": 10, "cloud": 0, "edge": 8}
            calls = awaited_calls(server.log)
            assert len(calls) == 3
            outputs = [run(call, tmp_path) for call in calls]
            assert '"allocation_requests":[{"allocations"' in outputs[0].stdout
            assert "204" in outputs[1].stdout.splitlines()[0], outputs[1]
            assert '"PCPU"' in outputs[2].stdout
            before = get(server.url, "/ext/v1/clusters/edge/nodes/edge-01")
            providers = len(get(server.url, "/resource_providers")["resource_providers"])
        with running_service(connection, arguments=["--demo"]) as server:
            assert get(server.url, "/ext/v1/clusters/edge/nodes/edge-01") == before
            assert len(get(server.url, "/resource_providers")["resource_providers"]) == providers
