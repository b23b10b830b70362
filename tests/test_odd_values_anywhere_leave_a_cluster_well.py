"""An odd value at any place of a node, a pod or a reservation leaves its cluster to be read and changed.

The choice is the same in every run, and another one on each database; `make fuzz` tries many more.
"""

from __future__ import annotations

import json
import random
from typing import Any

from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, node_manifests
from tests.odd_values import Request, chosen, health, requests, scene

_EACH = 45
# Most of what is refused is refused for the odd value itself.
_LEAST_RECORDED = 75


def named(request: Request, body: Any, number: int) -> tuple[str, Any]:
    """The path and the body of a pod or reservation with a name of its own; nodes keep theirs."""
    if "/nodes/" in request.path:
        return request.path, body
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("name") in (None, "odd"):
        body = {**body, "metadata": {**metadata, "name": f"odd-{number}"}}
    return f"{request.path.rsplit('/', 1)[0]}/odd-{number}", body


def test_what_is_recorded_can_be_read_and_deleted(api: Client, database: Database):
    scene(api)
    rng, recorded = random.Random(database.engine.dialect.name), list[str]()
    for request in requests()[:4]:
        assert request.method == "PUT"
        for number, (place, value, odd) in enumerate(chosen(request, _EACH, rng)):
            path, body = named(request, odd, number)
            about = (request.path, place, repr(value)[:80])
            text = json.dumps(body).encode()
            answer = api.call("PUT", path, text, Content_Type="application/json")
            assert answer.status_code in (200, 201, 400, 409), (about, answer.text)
            if answer.status_code >= 400:
                continue
            recorded.append(path)
            assert api.get(path).status_code == 200, about
            assert health(api, briefly=True) == {}, about
            assert api.delete(path).status_code == 204, about
    assert len(recorded) >= _LEAST_RECORDED, len(recorded)
    assert api.put(f"{CLUSTER}/nodes/n2", node_manifests("n2")).status_code == 201
    assert health(api) == {}
