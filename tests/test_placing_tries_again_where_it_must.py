"""What gets in the way of placing is told apart: a node that refuses, another node, the pod itself."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from flask import Flask

from placement.engine.domain.errors import NotFound
from placement.http.registry import registry_of
from placement.pods.decide.reading import PodDocument
from placement.pods.services.pods import Pods, Precondition
from placement.pods.services.scheduler import PodScheduler
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.writer import PodWriter
from placement.providers.statements import providers
from placement.storage import tables
from placement.storage.database import Database
from tests import clocks
from tests.client import Client, code, detail
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import check, nothing_is_held
from tests.pod_rules import ruled_pod
from tests.reservations import WEB, reservation

PODS = f"{CLUSTER}/pods/default"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"
OTHER_UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d22"
THIRD_UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d33"
GANG = "gang.scheduling.koordinator.sh"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api, "n1", "n2")


def on(name: str, **given) -> dict:
    return pod_manifest(cpu="2", nodeSelector={"kubernetes.io/hostname": name}, **given)


def in_one_call(api: Client, *pods: dict[str, Any]) -> list[int]:
    answer = api.post(f"{CLUSTER}/pods", {"apiVersion": "v1", "kind": "List", "items": list(pods)})
    assert answer.status_code == 200, answer.text
    return [each["status"] for each in answer.json["pods"]]


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Let others do something once, between the decision about a pod and the transaction that writes it."""
    real, once = PodWriter.register_attributes, iter([what])

    def attributes(self: PodWriter, *arguments: Any) -> Any:
        for each in once:
            each()
        return real(self, *arguments)

    monkeypatch.setattr(PodWriter, "register_attributes", attributes)


def after_the_look(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Let others do something once, after it was looked which pods of that name or uid are known."""
    real, once = PodScheduler.known_pods, iter([what])

    def known(self: PodScheduler, *arguments: Any) -> Any:
        found = real(self, *arguments)
        for each in once:
            each()
        return found

    monkeypatch.setattr(PodScheduler, "known_pods", known)


def test_a_change_elsewhere_does_not_speak_against_the_node(
    cluster: Client, application: Flask, monkeypatch: pytest.MonkeyPatch
):
    """A pod moves from n1 to n2, and n1 changes while that is decided."""
    assert cluster.put(f"{PODS}/web", on("n1", uid=UID)).json["node"] == "n1"
    registry = registry_of(application)
    look = registry[ClusterCache].snapshot
    looks = []

    def view(name: str) -> ClusterSnapshot:
        seen: ClusterSnapshot = look(name)
        looks.append(seen)
        if len(looks) == 1:
            noise = pod_manifest(cpu="1", qos="LS", node="n1")
            registry[Pods].place("edge", PodDocument.named("edge", "default", "noise", noise))
        return seen

    monkeypatch.setattr(registry[ClusterCache], "snapshot", view)
    answer = cluster.put(f"{PODS}/web", on("n2", uid=OTHER_UID))
    assert (answer.status_code, answer.json["node"]) == (200, "n2"), answer.text
    assert len(looks) > 2


def test_a_node_that_lacks_a_provider_is_passed_over(cluster: Client, database: Database):
    first = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu="2")).json["nodes"][0]
    assert (first["name"], first["cpuset"]) == ("n1", "0-1")
    with database.write() as transaction:
        core = providers.uuids_by_name(transaction, ["edge/n1/core-0-0"])["edge/n1/core-0-0"]
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
    users = sa.select(sa.func.count()).select_from(tables.users)
    with database.read() as connection:
        before = connection.execute(users).scalar_one()
    for namespace in ("nowhere", "n" * 300):
        for method in ("GET", "DELETE"):
            assert cluster.call(method, f"{CLUSTER}/pods/{namespace}/web").status_code == 404
    answer = cluster.put(f"{CLUSTER}/pods/crowded/web", pod_manifest(cpu="100"))
    assert answer.status_code == 409
    with database.read() as connection:
        assert connection.execute(users).scalar_one() == before


def test_a_pod_is_released_by_its_own_uid_only(cluster: Client, application: Flask):
    pod = cluster.put(f"{PODS}/web", pod_manifest(uid=UID)).json
    pods = registry_of(application)[Pods]
    with pytest.raises(NotFound):
        pods.delete("edge", "default", "web", Precondition(OTHER_UID))
    assert cluster.get(f"{PODS}/web").json == pod
    pods.delete("edge", "default", "web", Precondition(UID.upper()))
    assert cluster.get(f"{PODS}/web").status_code == 404


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("before", [None, UID])
def test_a_pod_of_its_name_that_came_meanwhile_is_found(
    cluster: Client,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    many: bool,
):
    """A second writer has the name first, on another node than the one that was decided on."""
    if before is not None:
        assert cluster.put(f"{PODS}/web", on("n1", uid=before)).status_code == 201

    def comes() -> None:
        assert cluster.put(f"{PODS}/web", on("n2", uid=THIRD_UID)).status_code in (200, 201)

    if before is None or many:
        meanwhile(monkeypatch, comes)
    else:
        after_the_look(monkeypatch, comes)
    pod = on("n1", uid=OTHER_UID)
    if many:
        pod["metadata"] |= {"name": "web", "namespace": "default"}
        assert in_one_call(cluster, pod) == [200]
    else:
        assert cluster.put(f"{PODS}/web", pod).status_code == 200
    found = cluster.get(PODS.removesuffix("/default")).json["pods"]
    assert [(each["uid"], each["node"]) for each in found] == [(OTHER_UID, "n1")]
    check(database, "edge")


def test_a_reservation_that_came_back_meanwhile_is_released_by_its_successor(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """It was over when its successor was decided on, and is on another node when that is written."""

    def reserved(uid: str, node: str) -> dict[str, Any]:
        body = reservation("kept", template=pod_manifest("8", nodeName=node))
        body["metadata"]["uid"] = uid
        return body

    path = f"{CLUSTER}/reservations/kept"
    assert cluster.put(path, reserved(UID, "n1")).status_code == 201
    assert cluster.put(f"{PODS}/web", pod_manifest("4", labels=WEB)).json["node"] == "n1"
    (claim,) = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    assert cluster.get(path).json["phase"] == "Succeeded"
    given_back = f"{PODS}/web?changed_at={quote(claim['changed_at'])}"
    after_the_look(monkeypatch, lambda: cluster.delete(given_back))
    assert cluster.put(path, reserved(OTHER_UID, "n2")).status_code in (200, 201)
    shown = cluster.get(path).json
    assert (shown["uid"], shown["phase"], shown["node"]) == (OTHER_UID, "Available", "n2")
    check(database, "edge")
    assert cluster.delete(path).status_code == 204
    assert nothing_is_held(database)


def test_a_gang_goes_into_the_cluster_that_is_there_by_then(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    def recreated() -> None:
        for name in ("n1", "n2"):
            assert cluster.delete(f"{CLUSTER}/nodes/{name}").status_code == 204
        assert cluster.delete(CLUSTER).status_code == 204
        assert cluster.put(CLUSTER, {"guaranteedQoS": "LS"}).status_code == 201
        assert cluster.put(f"{CLUSTER}/nodes/n1", node_manifests("n1")).status_code == 201

    members = [pod_manifest("4", labels={"pod-group.scheduling.sigs.k8s.io": "g"}) for _ in "ab"]
    for name, member in zip("ab", members, strict=True):
        member["metadata"] |= {"name": name, "namespace": "default"}
        member["metadata"]["annotations"] |= {f"{GANG}/name": "g", f"{GANG}/min-available": "2"}
    meanwhile(monkeypatch, recreated)
    assert in_one_call(cluster, *members) == [201, 201]
    check(database, "edge")
    # The consumers are of this cluster, so they go with their pods.
    for name in "ab":
        assert cluster.delete(f"{PODS}/{name}").status_code == 204
    assert nothing_is_held(database)


@pytest.mark.parametrize("many", [False, True])
def test_a_pod_that_keeps_others_off_counts_from_its_commit_on(
    api: Client, database: Database, monkeypatch: pytest.MonkeyPatch, many: bool
):
    """It comes to another node of the zone, so the node that was decided on is as it was."""
    cluster_of(api, "n1", "n2", labels={"zone": "z"})
    hostname = "kubernetes.io/hostname"
    guard = ruled_pod("guard", {"apart": [("zone", WEB)], "nodeSelector": {hostname: "n2"}})

    def comes() -> None:
        if many:
            assert in_one_call(api, guard) == [201]
        else:
            assert api.put(f"{PODS}/guard", guard).status_code == 201

    meanwhile(monkeypatch, comes)
    answer = api.put(f"{PODS}/web", on("n1", labels=WEB))
    assert (answer.status_code, code(answer)) == (409, "unschedulable")
    assert "existing pods anti-affinity rules" in detail(answer)
    check(database, "edge")


def test_what_has_expired_is_released_though_its_node_changes_meanwhile(
    cluster: Client, monkeypatch: pytest.MonkeyPatch
):
    assert cluster.put(f"{PODS}/noise", pod_manifest("1", qos="LS", node="n1")).status_code == 201
    body = reservation("kept", template=pod_manifest("14", nodeName="n1"))
    assert cluster.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
    clocks.agreed(monkeypatch, datetime.timedelta(hours=25))
    real = PodScheduler._release
    once = iter([lambda: cluster.delete(f"{PODS}/noise")])

    def release(self: PodScheduler, view: ClusterSnapshot) -> None:
        for each in once:
            assert each().status_code == 204
        real(self, view)

    monkeypatch.setattr(PodScheduler, "_release", release)
    assert cluster.put(f"{PODS}/web", on("n1")).json["node"] == "n1"
    assert cluster.get(f"{CLUSTER}/reservations/kept").json["phase"] == "Failed"


def test_a_reservation_that_holds_nothing_any_more_goes_without_a_trace(cluster: Client, database: Database):
    body = reservation("kept", template=pod_manifest("4"), allocateOnce=False)
    assert cluster.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
    assert cluster.put(f"{PODS}/web", pod_manifest("4", labels=WEB)).status_code == 201
    assert cluster.delete(f"{CLUSTER}/reservations/kept").status_code == 204
    assert cluster.delete(f"{PODS}/web").status_code == 204
    assert nothing_is_held(database)
