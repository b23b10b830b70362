"""A process knows nodes that others changed as if it had loaded them afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from placement.pods.state.host import Place
from placement.pods.state.node_info import NodeInfo
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.loader import NodeLoader
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import loaded
from tests.reservations import reservation

POD = f"{CLUSTER}/pods/default/web"
# What is no fact of the database, or the same object for like nodes.
_OWN = {"serial", "counted", "template", "templates"}


@pytest.fixture
def cluster(api: Client) -> Client:
    """Three nodes, one of them with a pod."""
    cluster_of(api, "n0", "n1", "n2")
    assert api.put(POD, pod_manifest(cpu="2", qos="LSR")).status_code == 201
    return api


@pytest.fixture
def following(cluster: Client, database: Database) -> Iterator[ClusterCache]:
    """What another process knows of them."""
    cache = ClusterCache(database)
    assert len(cache.snapshot("edge").nodes) == 3
    yield cache
    cache.close()


def facts(nodes: Any) -> dict[str, dict[str, Any]]:
    names = ["accounts", *(each.name for each in fields(NodeInfo) if each.name not in _OWN)]
    return {
        node.name: {"left": left(node), **{name: getattr(node, name) for name in names}}
        for node in nodes.values()
    }


def left(node: NodeInfo) -> dict[Place, int]:
    return {place: node.left(place) for place in node.offers.inventories}


def assert_follows(cache: ClusterCache, database: Database) -> None:
    seen, stored = cache.snapshot("edge").nodes, loaded(database, "edge")
    assert facts(seen) == facts(stored)
    assert [node.host for node in seen.values()] == [stored[root_id].host for root_id in seen]


def known(cache: ClusterCache) -> set[tuple[str, str] | str]:
    """Names and uids of all pods and reservations."""
    holders = [each for node in cache.snapshot("edge").nodes.values() for each in node.holders]
    return {(each.namespace, each.name) for each in holders} | {each.uid for each in holders}


def place(api: Client, database: Database) -> None:
    assert api.put(f"{CLUSTER}/pods/default/db", pod_manifest(cpu="1", qos="LS")).status_code == 201


def give_back(api: Client, database: Database) -> None:
    assert api.delete(POD).status_code == 204


def report_elsewhere(api: Client, database: Database) -> None:
    body = pod_manifest(cpu="2", node="n2", status={"cpuset": "2,3"})
    assert api.put(f"{CLUSTER}/pods/default/moved", body).status_code == 201


def claim_as_nobodys_pod(api: Client, database: Database) -> None:
    where = api.get("/resource_providers?name=edge/n1").json["resource_providers"][0]["uuid"]
    assert api.claim({where: {"CUSTOM_NODE_MEMORY_MB": 64}}).status_code == 204


def import_again(api: Client, database: Database) -> None:
    body = node_manifests("n0", labels={"disk": "ssd"})
    assert api.put(f"{CLUSTER}/nodes/n0", body).status_code == 200


def import_smaller(api: Client, database: Database) -> None:
    body = node_manifests("n1", zones={0: {"cpu": "7", "memory": "12Gi"}, 1: {"cpu": "8", "memory": "16Gi"}})
    assert api.put(f"{CLUSTER}/nodes/n1", body).status_code == 200


def reserve(api: Client, database: Database) -> None:
    assert api.put(f"{CLUSTER}/reservations/kept", reservation()).status_code == 201


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
        root = sa.select(tables.nodes.c.resource_provider_id).where(tables.nodes.c.id == node_id)
        host = sa.update(tables.providers).where(tables.providers.c.id == root.scalar_subquery())
        transaction.execute(host.values(revision=transaction.stamp))


@pytest.mark.parametrize(
    "changes",
    [
        [remove, add, import_again, import_smaller, claim_as_nobodys_pod, reserve, place, give_back],
        [report_elsewhere],
        [write_without_labels],
        [damage],
        [exchange_cpus],
    ],
    ids=lambda changes: changes[0].__name__,
)
def test_a_change_is_known_as_if_loaded_afresh(
    changes: list[Callable[[Client, Database], None]],
    cluster: Client,
    following: ClusterCache,
    database: Database,
):
    for change in changes:
        before, there = facts(following.snapshot("edge").nodes), known(following)
        change(cluster, database)
        assert_follows(following, database)
        assert facts(following.snapshot("edge").nodes) != before
        view, now = following.snapshot("edge"), known(following)
        assert {key for key in there | now if following.may_have(view, [key])} == now


def test_pods_that_come_are_read_by_what_was_prepared(
    cluster: Client, following: ClusterCache, database: Database, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(NodeLoader, "load", lambda *_, **__: pytest.fail("loaded"))
        for number in range(3):
            body = pod_manifest(cpu="1", qos="LS")
            assert cluster.put(f"{CLUSTER}/pods/default/p{number}", body).status_code == 201
            following.snapshot("edge")
    assert_follows(following, database)


def test_only_pods_that_come_are_counted(cluster: Client, following: ClusterCache, database: Database):
    def counted() -> list[bool]:
        return [node.counted is not None for node in following.snapshot("edge").by_name.values()]

    before = following.snapshot("edge").nodes
    was = facts(before)
    assert counted() == [False] * 3, "each counted what it has when it was asked"
    node = cluster.put(f"{CLUSTER}/pods/default/db", pod_manifest(cpu="1", qos="LS")).json["node"]
    assert counted() == [name == node for name in ("n0", "n1", "n2")]
    assert_follows(following, database)
    assert {node.name: left(node) for node in before.values()} == {name: was[name]["left"] for name in was}
    cluster.delete(f"{CLUSTER}/pods/default/db")
    assert counted() == [False] * 3
    assert_follows(following, database)


def test_a_reservation_that_ends_is_not_counted_any_more(
    cluster: Client, following: ClusterCache, database: Database
):
    reserve(cluster, database)
    assert_follows(following, database)
    place(cluster, database)
    assert_follows(following, database)
    assert cluster.delete(f"{CLUSTER}/reservations/kept").status_code == 204
    assert_follows(following, database)


def test_who_looks_while_nodes_are_taken_over_misses_nobody(
    cluster: Client, following: ClusterCache, database: Database, monkeypatch: pytest.MonkeyPatch
):
    before, missed = known(following), []
    updated = ClusterSnapshot.updated

    def looked(view: ClusterSnapshot, *given: Any) -> ClusterSnapshot:
        after = updated(view, *given)
        here = {pod.uid for node in after.nodes.values() for pod in node.pods} | before
        missed.extend(key for key in here if not following.may_have(view, [key]))
        return after

    place(cluster, database)
    with monkeypatch.context() as patched:
        patched.setattr(ClusterSnapshot, "updated", looked)
        assert len(known(following) - before) == 2
    assert not missed


def test_a_uid_that_went_under_one_name_and_came_under_another_is_known(
    cluster: Client, following: ClusterCache, database: Database
):
    uid = str(uuid4())
    assert cluster.put(f"{CLUSTER}/pods/default/x", pod_manifest(cpu="1", uid=uid)).status_code == 201
    view = following.snapshot("edge")
    (home,) = [node for node in view.nodes.values() if any(pod.uid == uid for pod in node.pods)]
    (other, *_) = [node for node in view.nodes.values() if node is not home]
    (pod,) = [pod for pod in home.pods if pod.uid == uid]
    image = following._cached_clusters[home.cluster_id]
    image.replace({other.root_id: other}, {other.root_id: other.with_pod(replace(pod, name="y"))})
    image.replace({home.root_id: home}, {home.root_id: home.without(frozenset({pod.consumer}))})
    asked = [uid, ("default", "y"), ("default", "x")]
    assert [following.may_have(image.snapshot, [key]) for key in asked] == [True, True, False]
