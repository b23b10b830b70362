"""Nothing is prepared for a statement that the database of the service does not have."""

from __future__ import annotations

import uuid
from typing import Any

from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite
from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest

_CLUSTER = "/ext/v1/clusters/edge"


def test_statements_are_sent_only_where_they_exist(api: Client, database: Any, monkeypatch: Any):
    kind = type(database.backend)
    asked: list[str] = []
    for name in ("claim_at_once", "place_at_once"):
        monkeypatch.setattr(kind, name, _noting(asked, name, getattr(kind, name)))
    host = api.provider("host", VCPU=8)
    assert api.claim({host: {"VCPU": 1}}, str(uuid.uuid4())).status_code == 204
    several = {str(uuid.uuid4()): Client.allocations({host: {"VCPU": 1}}) for _ in range(2)}
    assert api.post("/allocations", several).status_code == 204
    api.put(_CLUSTER, {})
    api.put(f"{_CLUSTER}/nodes/n1", node_manifests("n1"))
    assert api.put(f"{_CLUSTER}/pods/default/p", pod_manifest("1")).status_code == 201
    wanted = {PostgreSQL: ["claim_at_once", "claim_at_once", "place_at_once"], SQLite: []}
    assert asked == wanted[kind]


def _noting(asked: list[str], name: str, real: Any) -> Any:
    def noting(*arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return real(*arguments, **options)

    return noting
