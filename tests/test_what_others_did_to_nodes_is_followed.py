"""A process knows nodes that others changed as if it had loaded them afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from placement.scheduling.node_info import NodeInfo
from placement.services.clusters.node_loading import NodeLoader
from placement.services.following.cluster_cache import ClusterCache
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest
from tests.pod_invariants import loaded

CLUSTER = "/ext/v1/clusters/edge"
POD = f"{CLUSTER}/pods/default/web"
# What is no fact of the database, or the same object for like nodes.
_OWN = {"serial", "counted", "template", "templates"}


@pytest.fixture
def cluster(api: Client) -> Client:
    """Three nodes, one of them with a pod."""
    assert api.put(CLUSTER).status_code == 201
    for number in range(3):
        assert api.put(f"{CLUSTER}/nodes/n{number}", node_manifests(f"n{number}")).status_code == 201
    assert api.put(POD, pod_manifest(cpu="2", qos="LSR")).status_code == 201
    return api


@pytest.fixture
def following(cluster: Client, database: Database) -> Iterator[ClusterCache]:
    """What another process knows of them."""
    cache = ClusterCache(database)
    assert len(cache.view("edge").nodes) == 3
    yield cache
    cache.close()


def facts(nodes: Any) -> dict[str, dict[str, Any]]:
    names = ["accounts", *(each.name for each in fields(NodeInfo) if each.name not in _OWN)]
    return {node.name: {name: getattr(node, name) for name in names} for node in nodes.values()}


def assert_follows(cache: ClusterCache, database: Database) -> None:
    seen, stored = cache.view("edge").nodes, loaded(database, "edge")
    assert facts(seen) == facts(stored)
    assert [node.host for node in seen.values()] == [stored[root_id].host for root_id in seen]
    view, pods = cache.view("edge"), [pod for node in stored.values() for pod in node.pods]
    assert all(cache.may_have(view, [pod.uid]) for pod in pods)
    names = [("default", name) for name in ("web", "db", "moved", "nobody")]
    there = {(pod.namespace, pod.name) for pod in pods}
    assert [cache.may_have(view, [name]) for name in names] == [name in there for name in names]


def place(api: Client, database: Database) -> None:
    assert api.put(f"{CLUSTER}/pods/default/db", pod_manifest(cpu="1", qos="LS")).status_code == 201


def give_back(api: Client, database: Database) -> None:
    assert api.delete(POD).status_code == 204


def report_elsewhere(api: Client, database: Database) -> None:
    body = pod_manifest(cpu="2", node="n2", status={"cpuset": "2,3"})
    assert api.put(f"{CLUSTER}/pods/default/moved", body).status_code == 201


def claim_as_nobodys_pod(api: Client, database: Database) -> None:
    where = api.get("/resource_providers?name=edge/n1").json["resource_providers"][0]["uuid"]
    body = {
        "allocations": {where: {"resources": {"CUSTOM_NODE_MEMORY_MB": 64}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    assert api.put(f"/allocations/{uuid4()}", body).status_code == 204


def import_again(api: Client, database: Database) -> None:
    body = node_manifests("n0", labels={"disk": "ssd"})
    assert api.put(f"{CLUSTER}/nodes/n0", body).status_code == 200


def remove(api: Client, database: Database) -> None:
    assert api.delete(f"{CLUSTER}/nodes/n2").status_code == 204


def add(api: Client, database: Database) -> None:
    assert api.put(f"{CLUSTER}/nodes/n3", node_manifests("n3")).status_code == 201


def write_without_labels(api: Client, database: Database) -> None:
    alter_row(database, lambda record: {key: record[key] for key in record if key != "labels"})
    place(api, database)


def damage(api: Client, database: Database) -> None:
    alter_row(database, lambda record: {**record, "cpus": "many"})
    place(api, database)


def exchange_cpus(api: Client, database: Database) -> None:
    alter_row(database, lambda record: {**record, "cpus": "6-7"})
    home = api.get(POD).json["node"]
    assert api.put(f"{CLUSTER}/pods/default/db", pod_manifest(cpu="1", node=home)).status_code == 201


def alter_row(database: Database, alter: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """As another release, or an accident, leaves the row of a pod."""
    with database.write() as transaction:
        ((id_, node_id, status),) = transaction.execute(
            sa.select(tables.pods.c.id, tables.pods.c.node_id, tables.pods.c.status)
        )
        changed = {**status, "record": alter(status["record"])}
        transaction.execute(sa.update(tables.pods).where(tables.pods.c.id == id_).values(status=changed))
        root = (
            sa.select(tables.nodes.c.resource_provider_id)
            .where(tables.nodes.c.id == node_id)
            .scalar_subquery()
        )
        host = sa.update(tables.providers).where(tables.providers.c.id == root)
        transaction.execute(host.values(revision=transaction.stamp))


_CHANGES = [
    place,
    give_back,
    report_elsewhere,
    claim_as_nobodys_pod,
    import_again,
    remove,
    add,
    write_without_labels,
    damage,
    exchange_cpus,
]


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_is_known_as_if_loaded_afresh(
    change: Callable[[Client, Database], None],
    cluster: Client,
    following: ClusterCache,
    database: Database,
):
    before = facts(following.view("edge").nodes)
    change(cluster, database)
    assert_follows(following, database)
    assert facts(following.view("edge").nodes) != before


def test_pods_that_come_are_read_by_what_was_prepared(
    cluster: Client, following: ClusterCache, database: Database, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(NodeLoader, "load", lambda *_, **__: pytest.fail("loaded"))
        for number in range(3):
            body = pod_manifest(cpu="1", qos="LS")
            assert cluster.put(f"{CLUSTER}/pods/default/p{number}", body).status_code == 201
            following.view("edge")
    assert_follows(following, database)


def test_only_pods_that_come_are_counted(cluster: Client, following: ClusterCache, database: Database):
    def counted() -> list[bool]:
        return [node.counted is not None for node in following.view("edge").by_name.values()]

    facts(following.view("edge").nodes)
    assert counted() == [False] * 3, "each counted what it has when it was asked"
    node = cluster.put(f"{CLUSTER}/pods/default/db", pod_manifest(cpu="1", qos="LS")).json["node"]
    assert counted() == [name == node for name in ("n0", "n1", "n2")]
    cluster.delete(f"{CLUSTER}/pods/default/db")
    assert counted() == [False] * 3
    assert_follows(following, database)
