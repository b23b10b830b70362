"""A search ends with its time or with its caller, and as long as it lasts it delays nobody."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from placement.allocations.candidates import CandidateSearch, SearchSettings
from placement.engine.domain import request_scope
from tests.client import Client, code
from tests.conftest import application_at, application_on
from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer, database_url, running_service
from tests.service import Service
from tests.test_claims_take_the_best_that_is_left import wish

DEVICES = 16
# A packing problem without any slack, which nobody solves within a test.
AMOUNTS = [2 * number + 1 for number in range(60, 140)]
ROOM = sum(AMOUNTS) // DEVICES + 1
HARD = "group_policy=none&limit=1&" + "&".join(
    f"resources_{amount}=CUSTOM_BOOM:{amount}" for amount in AMOUNTS
)


def fill(api) -> None:
    assert api.put("/resource_classes/CUSTOM_BOOM").status_code == 201
    host = api.provider("host", DISK_GB=10)
    for number in range(DEVICES):
        api.provider(f"device-{number}", host, CUSTOM_BOOM=ROOM)


@pytest.fixture
def brief() -> Iterator[Client]:
    """A service whose searches may take a moment only."""
    with application_on("sqlite", SearchSettings(seconds=0.2)) as application:
        client = Client(application.test_client())
        fill(client)
        yield client


def test_it_is_answered_503_and_names_what_is_hard(brief):
    answer = brief.get(f"/allocation_candidates?{HARD}")
    assert answer.status_code == 503
    error = answer.json["errors"][0]
    assert error["code"] == "placement.search_timeout"
    assert "0.2 s" in error["detail"]
    assert "group _" in error["detail"]
    assert "the base group" not in error["detail"]
    assert brief.get("/allocation_candidates?resources=DISK_GB:1").json["allocation_requests"]


@pytest.mark.parametrize("order", ["order_by=pack", "explain=1", "order_by=spread&explain=1"])
def test_ordered_and_explained_searches_end_too(brief, order):
    answer = brief.get(f"/ext/v1/allocation_candidates?{HARD}&{order}")
    assert answer.status_code == 503
    assert code(answer) == "placement.search_timeout"


def test_a_claim_of_the_best_ends_too(brief):
    answer = brief.post("/ext/v1/claims", wish() | {"query": HARD.replace("&limit=1", "")})
    assert answer.status_code == 503
    assert code(answer) == "placement.search_timeout"


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A service whose searches begin when the time of their requests is up."""
    with application_on("sqlite") as application:
        client = Client(application.test_client())
        fill(client)
        real = CandidateSearch.view

        def view(candidates: CandidateSearch) -> Any:
            found = real(candidates)
            request_scope.set_deadline(time.monotonic())
            return found

        monkeypatch.setattr(CandidateSearch, "view", view)
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/allocation_candidates?resources=DISK_GB:1",
        f"/allocation_candidates?{HARD}",
        "/ext/v1/allocation_candidates?resources=DISK_GB:1&explain=1",
    ],
)
def test_a_request_that_only_waited_is_not_blamed_on_its_query(waited, path):
    answer = waited.get(path)
    assert answer.status_code == 503
    error = answer.json["errors"][0]
    code = "service_unavailable" if path.startswith("/ext") else "undefined_code"
    assert error["code"] == f"placement.{code}"
    assert "The time of the request was up" in error["detail"]
    assert "Hard to place" not in error["detail"]


# -- the real service: searches that may take longer than any test, and others beside them --------------


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    environment = {"OS_PLACEMENT__SEARCH_TIMEOUT": str(100 * PATIENCE_SECONDS)}
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, environment=environment) as running,
    ):
        with application_at(connection) as application:
            fill(Client(application.test_client()))
        yield running


@contextmanager
def hard_search(server: RunningServer) -> Iterator[socket.socket]:
    """The connection of somebody who waits for a search without an end."""
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port), timeout=PATIENCE_SECONDS) as connected:
        connected.sendall(
            f"GET /allocation_candidates?{HARD} HTTP/1.1\r\nHost: {at.netloc}\r\nX-Auth-Token: admin\r\n"
            "OpenStack-API-Version: placement 1.39\r\n\r\n".encode()
        )
        yield connected


def cpu_seconds(pid: int) -> float:
    """The processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def await_work(pid: int, *, working: bool) -> None:
    """Wait until the process computes, or does not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(0.5)
        if (cpu_seconds(pid) > before) is working:
            return
    raise AssertionError(f"the worker is {'idle' if working else 'busy'} all the time")


def test_a_caller_who_leaves_ends_his_search(server):
    (worker,) = server.workers()
    with hard_search(server):
        await_work(worker, working=True)
    await_work(worker, working=False)


def test_other_searches_are_answered_beside_a_long_one(server):
    (worker,) = server.workers()
    service = Service(server.url)
    with hard_search(server) as waiting:
        await_work(worker, working=True)
        for _ in range(5):
            answer = service.call("GET", "/allocation_candidates?resources=DISK_GB:1&limit=10")
            assert len(answer.body["allocation_requests"]) == 1
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
    await_work(worker, working=False)
