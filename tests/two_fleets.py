"""Two services in this process: one with the example clusters, and one that has only the cluster edge.

Edge comes first in both, so that what is counted as it comes is equal. What only the other clusters have is
secret: no answer to a caller who is bound to edge may contain it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from placement.app import build
from placement.health import Health
from placement.http.registry import registry_of
from placement.server import demonstration
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.reservations import reservation
from tests.server import database_url

OPERATOR, SERVICE, ADMIN, READER, BATCH, NOWHERE = (
    f"{name}-{'t' * 40}" for name in ("operator", "service", "admin", "reader", "batch", "nowhere")
)
BOUND = SERVICE, ADMIN, READER
TOKENS = {
    OPERATOR: {"user": "root", "project": "ops", "roles": ["admin", "service"]},
    SERVICE: {"user": "edge", "project": "p", "roles": ["service"], "clusters": ["edge"]},
    ADMIN: {"user": "edge-admin", "project": "p", "roles": ["admin"], "clusters": ["edge"]},
    READER: {"user": "edge-reader", "project": "p", "roles": ["reader"], "clusters": ["edge"]},
    NOWHERE: {"user": "nowhere", "project": "p", "roles": ["service"], "clusters": []},
    BATCH: {"user": "batch", "project": "p", "roles": ["service"], "clusters": ["batch"]},
}
_EXAMPLES = demonstration.examples()
POD = yaml.safe_load((_EXAMPLES / "pod.yaml").read_text())
# Rows of other clusters by table, with what a caller of edge must not change.
_OWN = (
    "SELECT p.id FROM resource_providers p JOIN resource_provider_aggregates a "
    "ON a.resource_provider_id = p.root_provider_id JOIN clusters c ON c.aggregate_id = a.aggregate_id "
    "WHERE c.name = 'edge'"
)
_OWN_CONSUMERS = f"SELECT consumer_id FROM allocations WHERE resource_provider_id IN ({_OWN})"
_FOREIGN = {
    "resource_providers": f"id NOT IN ({_OWN})",
    "inventories": f"resource_provider_id NOT IN ({_OWN})",
    "resource_provider_traits": f"resource_provider_id NOT IN ({_OWN})",
    "resource_provider_aggregates": f"resource_provider_id NOT IN ({_OWN})",
    "allocations": f"resource_provider_id NOT IN ({_OWN})",
    "consumers": f"uuid NOT IN ({_OWN_CONSUMERS})",
    "clusters": "name <> 'edge'",
    "nodes": "cluster_id <> (SELECT id FROM clusters WHERE name = 'edge')",
    "pods": "cluster_id <> (SELECT id FROM clusters WHERE name = 'edge')",
}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod with CPUs of its own."""
    return {**POD, "metadata": {**POD["metadata"], "name": name, **metadata}}


@dataclass(frozen=True)
class Fleet:
    """A service with its database; `known` are objects of other clusters by the names of path parameters."""

    database: Database
    api: Client
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Look at the health of the service, as its server does every second."""
        registry_of(self.api.http.application)[Health].look()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what a statement finds."""
        with self.database.read() as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement))]

    def secrets(self) -> set[str]:
        """Return the names and uuids that only other clusters have."""
        statements = (
            f"SELECT uuid FROM resource_providers WHERE id NOT IN ({_OWN})",
            f"SELECT name FROM resource_providers WHERE id NOT IN ({_OWN})",
            f"SELECT uuid FROM consumers WHERE uuid NOT IN ({_OWN_CONSUMERS})",
            f"SELECT name FROM nodes WHERE {_FOREIGN['nodes']}",
            f"SELECT name FROM pods WHERE {_FOREIGN['pods']}",
            "SELECT uuid FROM placement_aggregates WHERE id NOT IN (SELECT aggregate_id FROM "
            f"resource_provider_aggregates WHERE resource_provider_id IN ({_OWN}))",
            "SELECT uuid FROM clusters WHERE name <> 'edge'",
        )
        return {str(row[0]) for statement in statements for row in self.rows(statement)}

    def others(self) -> dict[str, list[str]]:
        """Return all that the database has of other clusters."""
        return {
            table: sorted(map(repr, self.rows(f"SELECT * FROM {table} WHERE {foreign}")))
            for table, foreign in _FOREIGN.items()
        }


@contextmanager
def fleet(directory: Path, clusters: Sequence[str]) -> Iterator[Fleet]:
    """A service with some of the example clusters, and pods and a reservation in those that have nodes."""
    tokens = directory / "tokens.yaml"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    examples = directory / "examples"
    examples.mkdir()
    for number, name in enumerate(clusters):
        (examples / f"{number}-{name}").symlink_to(_EXAMPLES / name)
    with database_url("sqlite") as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(demonstration, "examples", lambda: examples)
            demonstration.load_into_empty(url)
        database = Database(url)
        application = build(database, compatible(auth_strategy="token", tokens_file=tokens))
        api = Client(application.test_client(), token=OPERATOR)
        registry_of(application)[Health].look()
        for name in clusters:
            _add_pods(api, name)
        yield Fleet(database, api)
        registry_of(application).close()
        database.dispose()


def _add_pods(api: Client, cluster: str) -> None:
    path = f"/ext/v1/clusters/{cluster}"
    if not api.get(f"{path}/nodes").json["nodes"]:
        return
    name = f"{cluster}-only-pod"
    assert api.put(f"{path}/pods/default/{name}", pod(name)).status_code == 201
    kept = f"{cluster}-only-reservation"
    assert api.put(f"{path}/reservations/{kept}", reservation(kept, "2")).status_code == 201
