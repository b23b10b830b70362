"""No GET writes to the database, not even where something has expired that the next writer releases."""

from __future__ import annotations

import datetime
from itertools import product
from pathlib import Path

import pytest

from placement.http.registry import registry_of
from placement.pods.services.clusters import Clusters
from placement.storage.database import Database
from tests import clocks
from tests.client import Client
from tests.described_service import KNOWN, TOKEN, described_service

# What the routes demand beside their paths.
ASKED = {
    "/allocation_candidates": "resources=VCPU:1",
    "/ext/v1/capacity": "resources=VCPU:1",
    "/ext/v1/explain": "resources=VCPU:1",
    "/ext/v1/audit/events": "timeout=0",
}
WRITES = ("write", "single_write")


def test_no_route_writes_for_a_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with described_service(tmp_path) as application:
        api = Client(application.test_client(), token=TOKEN)
        clocks.agreed(monkeypatch, datetime.timedelta(days=30))
        routes = [
            path for path, methods in api.get("/openapi.json").json["paths"].items() if "get" in methods
        ]
        assert len(routes) > 30
        written: list[str] = []

        def refuse(path: str):
            def write(*_: object) -> None:
                written.append(path)
                raise AssertionError(path)

            return write

        answered = set()
        for route in routes:
            if "follow" in route or "stream" in route:
                continue
            for path in paths(route):
                for name in WRITES:
                    monkeypatch.setattr(Database, name, refuse(path))
                answer = api.get(path + ("?" + ASKED[route] if route in ASKED else ""))
                if answer.status_code == 200:
                    answered.add(route)
        assert not written
        # The rest ask for what is not there, or have to be told more.
        assert len(answered) > len(routes) // 2
        shown = api.get("/ext/v1/clusters/edge/reservations/kept").json
        assert (shown["phase"], shown["remarks"], shown["node"]) == ("Failed", ["expired"], None)
        host = registry_of(application)[Clusters].nodes("edge")[0][0]
        assert "reservations" not in api.get(f"/ext/v1/clusters/edge/nodes/{host}").json


def paths(route: str) -> list[str]:
    """The addresses of a route, with what is there in its place."""
    names = [part[1:-1] for part in route.split("/") if part.startswith("{")]
    return [
        route.format(**dict(zip(names, values, strict=True)))
        for values in product(*(KNOWN.get(name, ("x",)) for name in names))
    ]
