"""Pods that were placed are reported when they are bound, many at once: each becomes what it would alone."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.conftest import application_of
from tests.kubernetes import NUMA_POLICY, STATUS, node_manifests, pod_manifest
from tests.pod_rules import ruled_pod
from tests.server import BACKENDS, database_url
from tests.statements import Counter
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


def relabelled(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give pods the labels of their node, as Kubernetes does from 1.35 on when it binds them."""
    for pod in pods:
        pod["metadata"]["labels"] |= {
            "topology.kubernetes.io/zone": "a",
            "topology.kubernetes.io/region": "b",
        }
    return pods


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


@pytest.mark.parametrize("changed", [list, relabelled])
def test_pods_that_are_reported_where_they_are_become_what_they_become_one_by_one(
    cluster: Client,
    database: Database,
    changed: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
):
    for path in (CLUSTER, OTHER):
        all_nodes(cluster, *bodies(3), path=path)
    pods = changed(bound(cluster, 6, CLUSTER))
    assert pods == changed(bound(cluster, 6, OTHER))
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


def test_pods_with_other_labels_are_reported_together_and_found_by_them(
    cluster: Client, other: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    all_nodes(cluster, *bodies(4))
    pods = relabelled(bound(cluster, 3, CLUSTER))
    # The other process knows the nodes as they were before the report.
    assert other.post(f"{CLUSTER}/pods/preview", pod_manifest("1")).status_code == 200
    with monkeypatch.context() as patched:
        patched.setattr(PodScheduler, "place", None)
        assert statuses(all_pods(cluster, *pods)) == [200] * 3
    apart = [["kubernetes.io/hostname", {"topology.kubernetes.io/zone": "a"}]]
    free = {f"n{number}" for number in range(4)} - {pod["spec"]["nodeName"] for pod in pods}
    for process in (cluster, other):
        preview = process.post(f"{CLUSTER}/pods/preview", ruled_pod("picky", {"apart": apart})).json
        assert {node["name"] for node in preview["nodes"]} == free != set()
    fresh = pod_invariants.check(database, "edge")
    pod_invariants.check_image(fresh, registry_of(other.http.application)[ClusterCache], "edge")


@pytest.mark.parametrize(("changed", "expected"), [(False, 1), (True, 2)])
def test_new_pods_beside_reports_need_another_snapshot_only_after_other_labels(
    cluster: Client, monkeypatch: pytest.MonkeyPatch, changed: bool, expected: int
):
    all_nodes(cluster, *bodies(3))
    pods = bound(cluster, 2, CLUSTER)
    real, taken = PodScheduler.expire_and_snapshot, []

    def counted(self: Any, name: str) -> Any:
        taken.append(name)
        return real(self, name)

    monkeypatch.setattr(PodScheduler, "expire_and_snapshot", counted)
    reported = relabelled(pods) if changed else pods
    assert (
        statuses(all_pods(cluster, *reported, named("new-1", "1"), named("new-2", "1")))
        == [200] * 2 + [201] * 2
    )
    assert len(taken) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_report_of_pods_with_other_labels_costs_at_most_twice_an_unchanged_one(backend: str):
    with database_url(backend) as url:
        database = Database(url)
        counter, ends = Counter(database.engine), list[sa.Connection]()
        for end in ("commit", "rollback"):
            sa.event.listen(database.engine, end, ends.append)
        with application_of(database) as application:
            api = Client(application.test_client())
            assert api.put(CLUSTER).status_code == 201
            all_nodes(api, *bodies(60))
            pods = bound(api, 200, CLUSTER)

            def reported() -> tuple[int, int]:
                """Statements and transactions of a report, and of reading the nodes that it changed."""
                counter.count = 0
                ends.clear()
                assert statuses(all_pods(api, *pods)) == [200] * 200
                assert api.post(f"{CLUSTER}/pods/preview", pod_manifest("1")).status_code == 200
                return counter.count, len(ends)

            reported()
            unchanged = reported()
            relabelled(pods)
            changed = reported()
            assert all(now <= 2 * before for now, before in zip(changed, unchanged, strict=True)), (
                changed,
                unchanged,
            )
        database.dispose()


def test_a_report_that_changes_nothing_is_no_change_of_an_aligned_pod(cluster: Client):
    node = node_manifests("n0", labels={NUMA_POLICY: "SingleNUMANode"})
    assert statuses(all_nodes(cluster, node)) == [201]
    (pod,) = bound(cluster, 1, CLUSTER)
    assert statuses(all_pods(cluster, pod)) == [200]
    before = cluster.get("/ext/v1/audit").json
    assert statuses(all_pods(cluster, pod)) == [200]
    assert cluster.get("/ext/v1/audit").json == before


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


@pytest.mark.one_database
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_pod_that_is_reported_on_another_node_says_what_it_loses(cluster: Client, is_batch: bool):
    all_nodes(cluster, node_manifests("n0"), node_manifests("n1"))
    (pod,) = bound(cluster, 1, CLUSTER)
    before = cluster.get(f"{CLUSTER}/pods/default/p0").json
    elsewhere = {"n0": "n1", "n1": "n0"}[before["node"]]
    pod["spec"]["nodeName"] = elsewhere
    # As a scheduler that knows nothing of CPUs writes it.
    pod["metadata"]["annotations"].pop(STATUS)

    def reported() -> Any:
        if is_batch:
            return all_pods(cluster, pod)[0]["pod"]
        return cluster.put(f"{CLUSTER}/pods/default/p0", pod).json

    answer = reported()
    assert (before["cpuset"], answer["cpuset"], answer["node"]) == ("0-1", "", elsewhere)
    assert answer["warnings"] == [
        f"moved from node {before['node']}, where it had CPUs 0-1, to node {elsewhere}, where it has none of "
        "its own: its resource-status names none"
    ]
    assert reported()["warnings"] == []


@pytest.mark.one_database
def test_a_pod_that_keeps_cpus_on_another_node_says_where_they_are(cluster: Client):
    all_nodes(cluster, node_manifests("n0"), node_manifests("n1"))
    (pod,) = bound(cluster, 1, CLUSTER)
    before = cluster.get(f"{CLUSTER}/pods/default/p0").json
    elsewhere = {"n0": "n1", "n1": "n0"}[before["node"]]
    pod["spec"]["nodeName"] = elsewhere
    answer = cluster.put(f"{CLUSTER}/pods/default/p0", pod).json
    assert answer["warnings"] == [
        f"moved from node {before['node']}, where it had CPUs 0-1, to node {elsewhere}, where it has CPUs 0-1"
    ]


@pytest.mark.one_database
def test_a_pod_without_cpus_of_its_own_moves_without_a_warning(cluster: Client):
    all_nodes(cluster, node_manifests("n0"), node_manifests("n1"))
    pod = named("shared", "1", qos="LS", node="n0")
    assert statuses(all_pods(cluster, pod)) == [201]
    pod["spec"]["nodeName"] = "n1"
    assert cluster.put(f"{CLUSTER}/pods/default/shared", pod).json["warnings"] == []
