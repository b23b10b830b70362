"""A long answer is never in memory as a whole, is passed on in pieces, and ends when its caller leaves."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response
from oslo_config import cfg
from werkzeug.test import EnvironBuilder, run_wsgi_app

from placement.allocations.candidates import SearchSettings
from placement.app import create_application
from placement.engine.domain import request_scope
from placement.http import answers
from placement.http.middleware import surrounded
from placement.http.registry import registry_of
from placement.http.worker import refusals
from tests.client import Client, unique
from tests.conftest import application_at, application_on, compatible
from tests.server import database_url, running_service

AMOUNTS = range(1, 13)


def path(amounts: range) -> str:
    groups = "&".join(f"resources{amount}=CUSTOM_TWO:{amount}" for amount in amounts)
    return f"/allocation_candidates?group_policy=none&{groups}"


PATH = path(AMOUNTS)
# 16,384 candidates of a kilobyte each.
LONG_PATH = path(range(1, 15))


def fill(api: Client) -> list[str]:
    assert api.put("/resource_classes/CUSTOM_TWO").status_code == 201
    host = api.provider("host", DISK_GB=10)
    return [api.provider(f"device-{number}", host, CUSTOM_TWO=1000) for number in range(2)]


def test_every_candidate_is_in_it_whatever_its_layout(monkeypatch):
    """Twelve groups of different amounts on two devices: nearly as many layouts as candidates."""
    monkeypatch.setattr(answers, "_BUILT_AT_ONCE_BYTES", 1000)
    with application_on("sqlite") as application:
        api = Client(application.test_client())
        devices = fill(api)
        answer = api.get(PATH)
        assert "Content-Length" not in answer.headers
        requests = answer.json["allocation_requests"]
        chosen = set()
        for request in requests:
            places = {suffix: providers[0] for suffix, providers in request["mappings"].items()}
            held = {device: sum(int(s) for s, p in places.items() if p == device) for device in devices}
            given = {uuid: entry["resources"] for uuid, entry in request["allocations"].items()}
            assert given == {device: {"CUSTOM_TWO": amount} for device, amount in held.items() if amount}
            chosen.add(tuple(sorted(places.items())))
        assert len(chosen) == len(requests) == 2 ** len(AMOUNTS)


def test_short_answers_have_a_length_and_long_ones_come_in_chunks():
    with database_url("sqlite") as connection, running_service(connection, workers=1) as server:
        with application_at(connection, SearchSettings()) as application:
            fill(Client(application.test_client()))
            expected = Client(application.test_client()).get(LONG_PATH).get_data()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}

        def fetched(path: str):
            with opener.open(urllib.request.Request(server.url + path, headers=headers)) as answer:
                return answer.headers, answer.read()

        found, body = fetched(PATH + "&limit=5")
        assert int(found["Content-Length"]) == len(body)
        assert len(json.loads(body)["allocation_requests"]) == 5
        found, body = fetched(LONG_PATH)
        assert found["Transfer-Encoding"] == "chunked"
        assert body == expected


class Source:
    """An answer without end that knows how much of it was asked for."""

    def __init__(self) -> None:
        self.given = 0
        self.closed = False

    def pieces(self) -> Iterator[bytes]:
        """The pieces."""
        try:
            while True:
                self.given += 1
                yield b"x" * 1000
        finally:
            self.closed = True


def configuration() -> cfg.ConfigOpts:
    settings = cfg.ConfigOpts()
    settings([], project="placement", default_config_files=[], default_config_dirs=[])
    return settings


@pytest.fixture
def everything_around() -> Any:
    """Wraps an application into all that a configuration can ask for."""
    settings = configuration()
    bare = lambda environ, start_response: None  # noqa: E731
    surrounded(bare, settings, request_seconds=30)
    settings.set_override("allowed_origin", ["https://dashboard.example.org"], group="cors")
    settings.set_override("enable_proxy_headers_parsing", True, group="oslo_middleware")
    return lambda application: surrounded(application, settings, request_seconds=30)


def test_pieces_pass_one_by_one_through_everything_around(everything_around):
    source = Source()
    application = Flask("source")
    application.add_url_rule("/all", view_func=lambda: Response(source.pieces()))
    environ = EnvironBuilder("/all", headers={"Origin": "https://dashboard.example.org"}).get_environ()
    answer, status, _ = run_wsgi_app(everything_around(application.wsgi_app), environ)
    assert status == "200 OK"
    assert next(iter(answer)) == b"x" * 1000
    assert source.given <= 2
    answer.close()
    assert source.closed


@pytest.mark.one_database
def test_a_streamed_answer_is_in_work_until_it_is_closed(application: Flask):
    source = Source()
    limited = create_application(registry_of(application), compatible(max_requests_per_caller=1))
    limited.add_url_rule("/source", view_func=lambda: Response(source.pieces()))
    client = Client(limited.test_client())
    answer = client.get("/source")
    assert next(answer.iter_encoded()) == b"x" * 1000
    refused = client.get("/traits")
    assert refused.status_code == 429
    # The server that counts by itself answers the same.
    head, _, body = refusals.written(refusals.TOO_MANY_OF_CALLER).decode().partition("\r\n\r\n")
    (by_server,), (by_application,) = json.loads(body)["errors"], refused.json["errors"]
    assert by_server | {"request_id": by_application["request_id"]} == by_application
    assert f"Retry-After: {refused.headers['Retry-After']}\r\n" in f"{head}\r\n"
    for other in (client.as_("somebody-else").get("/traits"), client.as_(None).get("/")):
        assert other.status_code in (200, 403)
        other.close()
    answer.close()
    assert source.closed
    for path in ("/traits", f"/traits/CUSTOM_{unique().upper()}", "/nothing"):
        answer = client.get(path)
        assert answer.status_code != 429
        answer.close()


@pytest.mark.one_database
def test_every_request_has_a_deadline(application: Flask):
    seen = []
    application.add_url_rule("/left", view_func=lambda: seen.append(request_scope.remaining()) or "ok")
    client = Client(application.test_client())
    assert client.get("/left").status_code == 200
    assert seen[0] < math.inf
    assert 0 < seen[0] <= 30
