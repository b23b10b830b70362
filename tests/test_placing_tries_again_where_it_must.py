"""What gets in the way of placing is told apart: a node that refuses, another node, the pod itself."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask import Flask

from placement.domain.errors import NotFound
from placement.services.clusters.pod_writing import Precondition
from placement.services.following.cluster_cache import ClusterSnapshot
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.statements import provider_rows, providers
from tests.client import Client, code, detail
from tests.kubernetes import node_manifests, pod_manifest
from tests.pod_invariants import check

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods/default"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"
OTHER_UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d22"


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER).status_code == 201
    for name in ("n1", "n2"):
        assert api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name)).status_code == 201
    return api


def on(name: str, **given) -> dict:
    return pod_manifest(cpu="2", nodeSelector={"kubernetes.io/hostname": name}, **given)


def users(database: Database) -> int:
    with database.read() as connection:
        found: int = connection.execute(sa.select(sa.func.count()).select_from(tables.users)).scalar_one()
    return found


def test_a_change_elsewhere_does_not_speak_against_the_node(
    cluster: Client, application: Flask, monkeypatch: pytest.MonkeyPatch
):
    """A pod moves from n1 to n2, and n1 changes while that is decided."""
    assert cluster.put(f"{PODS}/web", on("n1", uid=UID)).json["node"] == "n1"
    use_cases = application.extensions["placement_use_cases"]
    look = use_cases.cluster_cache.view
    looks = []

    def view(name: str) -> ClusterSnapshot:
        seen: ClusterSnapshot = look(name)
        looks.append(seen)
        if len(looks) == 1:
            use_cases.pods.put("edge", "default", "noise", pod_manifest(cpu="1", qos="LS", node="n1"))
        return seen

    monkeypatch.setattr(use_cases.cluster_cache, "view", view)
    answer = cluster.put(f"{PODS}/web", on("n2", uid=OTHER_UID))
    assert (answer.status_code, answer.json["node"]) == (200, "n2"), answer.text
    assert len(looks) > 2


def test_a_node_that_lacks_a_provider_is_passed_over(cluster: Client, database: Database):
    first = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu="2")).json["nodes"][0]
    assert (first["name"], first["cpuset"]) == ("n1", "0-1")
    with database.write() as transaction:
        core = provider_rows.uuids_by_name(transaction, ["edge/n1/core-0-0"])["edge/n1/core-0-0"]
        locked = providers.lock(transaction, core)
        assert locked is not None
        providers.delete(transaction, [locked.id])
    for name in ("a", "b"):
        answer = cluster.put(f"{PODS}/{name}", pod_manifest(cpu="2"))
        assert (answer.status_code, answer.json["node"]) == (201, "n2"), answer.text
    answer = cluster.put(f"{PODS}/c", on("n1"))
    assert (answer.status_code, code(answer)) == (409, "unschedulable")
    assert cluster.put(f"{CLUSTER}/nodes/n1", node_manifests("n1")).json["created"] == ["edge/n1/core-0-0"]
    assert cluster.put(f"{PODS}/c", on("n1")).json["node"] == "n1"
    check(database, "edge")


def test_a_node_that_refuses_the_pod_it_has_is_not_asked_for_ever(cluster: Client):
    pod = cluster.put(f"{PODS}/web", on("n1", uid=UID)).json
    for numa in cluster.get(f"{CLUSTER}/nodes/n1").json["tree"]["children"]:
        path = f"/resource_providers/{numa['uuid']}/inventories"
        shown = cluster.get(path).json
        shown["inventories"]["CUSTOM_CPU_MILLI"]["total"] = 2000
        assert cluster.put(path, shown).status_code == 200
    grown = pod_manifest(cpu="4", uid=UID, nodeSelector={"kubernetes.io/hostname": "n1"})
    answer = cluster.put(f"{PODS}/web", grown)
    assert answer.status_code == 409
    assert "inventories that differ from the imported node" in detail(answer)
    assert cluster.get(f"{PODS}/web").json == pod


def test_what_is_refused_leaves_nothing_behind(cluster: Client, database: Database):
    before = users(database)
    for namespace in ("nowhere", "n" * 300):
        for method in ("GET", "DELETE"):
            assert cluster.call(method, f"{CLUSTER}/pods/{namespace}/web").status_code == 404
    answer = cluster.put(f"{CLUSTER}/pods/crowded/web", pod_manifest(cpu="100"))
    assert answer.status_code == 409
    assert users(database) == before


def test_a_pod_is_released_by_its_own_uid_only(cluster: Client, application: Flask):
    pod = cluster.put(f"{PODS}/web", pod_manifest(uid=UID)).json
    pods = application.extensions["placement_use_cases"].pods
    with pytest.raises(NotFound):
        pods.delete("edge", "default", "web", Precondition(OTHER_UID))
    assert cluster.get(f"{PODS}/web").json == pod
    pods.delete("edge", "default", "web", Precondition(UID.upper()))
    assert cluster.get(f"{PODS}/web").status_code == 404
