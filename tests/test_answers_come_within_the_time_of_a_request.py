"""A database that says nothing any more is given up early enough to answer within `request_timeout`."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from placement.engine.domain import request_scope
from placement.http.caller_limits import deadline_of
from placement.server import settings
from placement.storage.backends import postgresql_driver
from placement.storage.backends.postgresql_driver import WatchedConnection
from tests.client import Client

_REQUEST_SECONDS = 30.0


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_each_statement_is_given_up_before_the_time_of_the_request_is_over(api: Client, monkeypatch: Any):
    host = api.provider("host", VCPU=8)
    expiries: list[float] = []
    real = WatchedConnection.allow

    def allow(connection: WatchedConnection) -> None:
        real(connection)
        expiries.append(connection.expires)

    monkeypatch.setattr(WatchedConnection, "allow", allow)
    arrived = time.monotonic()
    assert api.claim({host: {"VCPU": 1}}, "00000000-0000-0000-0000-000000000001").status_code == 204
    assert api.get("/allocation_candidates?resources=VCPU:1").status_code == 200
    assert api.get("/resource_providers").status_code == 200
    answered = time.monotonic()
    assert expiries
    # Each of these requests began between the two moments.
    latest = answered + _REQUEST_SECONDS - postgresql_driver._LOOK_SECONDS
    assert max(expiries) < latest
    assert min(expiries) > arrived


@pytest.mark.parametrize("seconds", [6, 30, 300])
def test_requests_that_just_began_send_no_limits_of_their_own(seconds: float, monkeypatch: Any):
    """The limits of the session end a statement in time."""
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", "postgresql://nobody@127.0.0.1/none")
    monkeypatch.setenv("OS_API__REQUEST_TIMEOUT", str(seconds))
    backend = settings.open_database(settings.load([])).backend
    work_seconds = deadline_of(0.0, seconds)
    monkeypatch.setattr(request_scope, "remaining", lambda most=math.inf: min(most, work_seconds))
    nothing: Any = None
    assert "SET" not in backend.begin_write(nothing) + backend.begin_snapshot()
    monkeypatch.setattr(request_scope, "remaining", lambda most=math.inf: min(most, 0.5))
    assert "SET" in backend.begin_write(nothing)
    assert "SET" in backend.begin_snapshot()


@pytest.mark.parametrize(("seconds", "work"), [(1, 0.5), (4, 2), (6, 3), (30, 27), (300, 297)])
def test_work_ends_before_the_time_of_the_request(seconds: float, work: float):
    assert deadline_of(100.0, seconds) == 100.0 + work


@pytest.mark.parametrize("seconds", [6, 8, 30])
def test_a_silent_server_is_given_up_before_the_time_of_the_request(seconds: float):
    given_up = deadline_of(0.0, seconds) + postgresql_driver.GRACE_SECONDS + postgresql_driver._LOOK_SECONDS
    assert given_up < seconds < math.inf
