"""Count the functions of Python that the hottest routes call, and record them in a file.

`python -m tests.calls` counts again and writes the file; a change of a count shows in the review.
Functions of libraries count, too; those of the server, which calls the application, do not.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

from flask import Flask
from werkzeug.test import EnvironBuilder

from placement.server import settings
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_of
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import unhurried
from tests.server import BACKENDS, DATABASE_VARIABLE, database_url, postgresql_server

RECORD = Path(__file__).with_name("call_counts.json")
PYTHON = platform.python_version()
"""The version in full. Counts are compared within a minor version: since 3.12 a comprehension is no call."""
_ROOT = Path(__file__).resolve().parents[1]
_HOSTS, _NODES = 20, 12
_WARM = 5
# What depends on the clock, such as a file that is looked at once a second, is not called each time.
_COUNTS = 9
_CLUSTER = "/ext/v1/clusters/hot"
_SETTINGS = {
    "PYTHONHASHSEED": "0",
    "OS_API__AUTH_STRATEGY": "noauth2",
    "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS": "False",
}
_HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}

Request = tuple[str, str, Any]
"""Method, path, body."""


class Scene:
    """Some hosts, nodes and consumers, and the next request of each of the ten hottest routes."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._hosts = [api.provider(f"host-{number}", VCPU=10_000) for number in range(_HOSTS)]
        self._held, self._numbers = str(uuid.UUID(int=1)), itertools.count(2)
        self._claim(self._held)
        api.put(_CLUSTER, {})
        rows = tuple((cpu, cpu // 2, cpu // 64, cpu // 64) for cpu in range(128))
        for number in range(_NODES):
            api.put(f"{_CLUSTER}/nodes/node-{number}", node_manifests(f"node-{number}", rows=rows))

    def requests(self) -> dict[str, Callable[[], Request]]:
        """Return a function for each route that makes what its request needs, and returns the request."""
        asked = {
            "Pod": pod_manifest("4", uid="uid-asked"),
            "NodeNames": [f"node-{number}" for number in range(_NODES)],
        }
        return {
            "GET /allocation_candidates": self._search,
            "GET /allocation_candidates after a claim": self._search_after_a_claim,
            "GET /allocations/{consumer}": lambda: ("GET", f"/allocations/{self._held}", None),
            "PUT /allocations/{consumer} new": lambda: ("PUT", f"/allocations/{self._new()}", self._body()),
            "DELETE /allocations/{consumer}": lambda: (
                "DELETE",
                f"/allocations/{self._claim(self._new())}",
                None,
            ),
            "POST /ext/v1/claims": lambda: ("POST", "/ext/v1/claims", self._query()),
            "PUT pod new": lambda: ("PUT", f"{_CLUSTER}/pods/default/pod-{next(self._numbers)}", self._pod()),
            "POST preview": lambda: ("POST", f"{_CLUSTER}/pods/preview", self._pod()),
            "POST filter": lambda: ("POST", f"{_CLUSTER}/extender/filter", asked),
            "POST prioritize": lambda: ("POST", f"{_CLUSTER}/extender/prioritize", asked),
        }

    def _search(self) -> Request:
        return "GET", "/allocation_candidates?resources=VCPU:1&limit=10", None

    def _search_after_a_claim(self) -> Request:
        self._claim(self._new())
        return self._search()

    def _claim(self, consumer: str) -> str:
        assert self._api.put(f"/allocations/{consumer}", self._body()).status_code == 204
        return consumer

    def _body(self) -> dict[str, Any]:
        return Client.allocations({self._hosts[0]: {"VCPU": 1}})

    def _query(self) -> dict[str, Any]:
        owner = {"project_id": "project", "user_id": "user", "consumer_type": "TYPE"}
        return {**owner, "query": "resources=VCPU:1", "consumer_uuid": self._new()}

    def _pod(self) -> dict[str, Any]:
        return pod_manifest("1", "128Mi", qos="LSR")

    def _new(self) -> str:
        return str(uuid.UUID(int=next(self._numbers)))


def measured(backend: str) -> dict[str, int]:
    """Return the calls per route, counted in a process of its own without other settings of the service.

    Raises RuntimeError if a request fails.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment = {**kept, **_SETTINGS}
    if backend == "postgresql":
        environment[DATABASE_VARIABLE] = postgresql_server().render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.calls", backend],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def recorded() -> dict[str, Any]:
    """Return what the file has: `python`, the version in full, and `calls` by backend and route."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def minor(version: str) -> str:
    """Return the minor version, "3.11" of "3.11.2"."""
    return ".".join(version.split(".")[:2])


def more(now: dict[str, int], before: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the routes that call more functions than before, with both counts."""
    return {name: (before[name], count) for name, count in now.items() if count > before[name]}


def _counted(backend: str) -> dict[str, int]:
    with unhurried(), database_url(backend) as url:
        database, configuration = Database(url), settings.load()
        settings.start_logging(configuration)
        with application_of(database, configuration) as application:
            requests = Scene(Client(application.test_client())).requests()
            found = {name: _least(application, make) for name, make in requests.items()}
        database.dispose()
    return found


def _least(application: Flask, make: Callable[[], Request]) -> int:
    counts = [_calls(application, *make()) for _ in range(_WARM + _COUNTS)]
    return min(counts[_WARM:])


def _calls(application: Flask, method: str, path: str, body: Any) -> int:
    """Count the calls of one request."""
    environ = EnvironBuilder(path, method=method, headers=[*_HEADERS.items()], json=body).get_environ()
    environ["REMOTE_ADDR"] = "127.0.0.1"
    count = 0
    statuses: list[str] = []

    def note(_frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    def start_response(status: str, *_: Any) -> Any:
        statuses.append(status)

    # What a collection finds depends on everything before.
    gc.disable()
    sys.setprofile(note)
    try:
        answer: Any = application(environ, start_response)
        content = b"".join(answer)
        answer.close()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert statuses[0].startswith("2"), (method, path, statuses, content)
    return count


def main() -> None:
    """Count for the backend that is named and print, or for each and write the file."""
    if backend := sys.argv[1:]:
        # Lines of the log are written as usual, and are not in the way.
        with redirect_stdout(sys.stderr):
            counted = _counted(*backend)
        sys.stdout.write(json.dumps(counted))
        return
    found = {backend: measured(backend) for backend in BACKENDS}
    RECORD.write_text(json.dumps({"python": PYTHON, "calls": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
