"""A long answer is never in memory as a whole, and is the same as if it had been."""

from __future__ import annotations

import json
import urllib.request

from placement.allocations.candidates import SearchSettings
from placement.http import context
from tests.client import Client
from tests.conftest import application_at, application_on
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
    monkeypatch.setattr(context, "_BUILT_AT_ONCE_BYTES", 1000)
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
