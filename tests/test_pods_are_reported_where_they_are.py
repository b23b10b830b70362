"""Pods that were placed are reported when they are bound, many at once: each becomes what it would alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from placement.http.registry import registry_of
from placement.pods.services.scheduler import PodScheduler
from placement.pods.store.cache import ClusterCache
from placement.storage import tables
from placement.storage.database import Database
from tests import pod_invariants
from tests.client import Client
from tests.kubernetes import STATUS
from tests.test_many_nodes_and_pods_come_at_once import (
    CLUSTER,
    OTHER,
    all_nodes,
    all_pods,
    bodies,
    named,
    statuses,
    unlike,
)  # fmt: skip


@pytest.fixture
def cluster(api: Client) -> Client:
    for path in (CLUSTER, OTHER):
        assert api.put(path).status_code == 201
    return api


def bound(cluster: Client, count: int, path: str) -> list[dict[str, Any]]:
    """Pods that were placed, as Kubernetes has them when they are bound."""
    waiting = [named(f"p{number}", "2") for number in range(count)]
    found = []
    for pod, outcome in zip(waiting, all_pods(cluster, *waiting, path=path), strict=True):
        pod["metadata"]["annotations"] = outcome["pod"]["annotations"]
        pod["metadata"]["resourceVersion"] = "7"
        pod["spec"]["nodeName"] = outcome["pod"]["node"]
        found.append(pod)
    return found


def stored_pods(database: Database, cluster: str) -> list[tuple[Any, ...]]:
    """The rows of pods, but for what tells clusters apart."""
    pods, nodes, clusters = tables.pods, tables.nodes, tables.clusters
    statement = (
        sa.select(pods.c.name, pods.c.manifest, pods.c.format, nodes.c.name, pods.c.status)
        .join(clusters, clusters.c.id == pods.c.cluster_id)
        .outerjoin(nodes, nodes.c.id == pods.c.node_id)
        .where(clusters.c.name == cluster)
        .order_by(pods.c.name)
    )
    with database.read() as connection:
        rows = [tuple(row) for row in connection.execute(statement)]
    return [
        (*row, {**status, "consumer": "", "record": {**status["record"], "consumer": ""}})
        for *row, status in rows
    ]


def stamps(database: Database) -> list[Any]:
    with database.read() as connection:
        statement = sa.select(tables.providers.c.id, tables.providers.c.generation)
        return [tuple(row) for row in connection.execute(statement.order_by(tables.providers.c.id))]


def test_pods_that_are_reported_where_they_are_become_what_they_become_one_by_one(
    cluster: Client, database: Database
):
    for path in (CLUSTER, OTHER):
        all_nodes(cluster, *bodies(3), path=path)
    pods = bound(cluster, 6, CLUSTER)
    assert pods == bound(cluster, 6, OTHER)
    # One says that it has other CPUs than it was given, one is wrong, and one is said to be elsewhere.
    pods[1]["metadata"]["annotations"] = {STATUS: json.dumps({"cpuset": "10-11"})}
    pods[2]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    pods[3]["spec"]["nodeName"] = next(f"n{n}" for n in range(3) if pods[3]["spec"]["nodeName"] != f"n{n}")
    together = all_pods(cluster, *pods)
    for pod, outcome in zip(pods, together, strict=True):
        alone = cluster.put(f"{OTHER}/pods/default/{pod['metadata']['name']}", pod)
        assert alone.status_code == outcome["status"], (alone.text, outcome)
        if alone.status_code == 200:
            assert unlike(alone.json) == unlike(outcome["pod"])
    assert statuses(together) == [200, 200, 400, 200, 200, 200]
    assert stored_pods(database, "edge") == stored_pods(database, "other")
    # Only what could not be recorded together still waits for its report.
    waiting = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    assert [pod["name"] for pod in waiting] == ["p2"]
    fresh = pod_invariants.check(database, "edge")
    cache = registry_of(cluster.http.application)[ClusterCache]
    pod_invariants.check_image(fresh, cache, "edge")


def test_pods_that_are_reported_where_they_are_need_no_look_at_each(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    all_nodes(cluster, *bodies(3))
    pods = bound(cluster, 6, CLUSTER)
    monkeypatch.setattr(PodScheduler, "place", None)
    before = stamps(database)
    assert statuses(all_pods(cluster, *pods)) == [200] * 6
    assert cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"] == []
    # Otherwise every process would read the nodes again.
    assert stamps(database) == before


def test_a_pod_is_looked_at_by_itself_where_its_node_changes_meanwhile(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    all_nodes(cluster, *bodies(1))
    pods = bound(cluster, 2, CLUSTER)
    real, alone, looked_at = PodScheduler._stay, PodScheduler.place, []

    def beaten(*given: Any) -> Any:
        assert cluster.put(f"{CLUSTER}/pods/default/faster", named("faster", "2")).status_code == 201
        return real(*given)

    def noted(self: Any, name: str, document: Any) -> Any:
        looked_at.append(document.name)
        return alone(self, name, document)

    monkeypatch.setattr(PodScheduler, "_stay", beaten)
    monkeypatch.setattr(PodScheduler, "place", noted)
    assert statuses(all_pods(cluster, *pods)) == [200, 200]
    assert looked_at == ["faster", "p0", "p1"]
    pod_invariants.check(database, "edge")
