"""A reservation for one pod is there again when that pod gives its claim back without having run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest

from placement.engine.domain.errors import PlacementError
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_of
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.pod_invariants import check
from tests.reservations import WEB, reservation

PODS = f"{CLUSTER}/pods/default"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d01"
RESERVED = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d02"


class Refusing:
    """An API server that refuses to bind a pod, after something else has happened."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def of(self, cluster: str) -> Refusing:
        return self

    def pod(self, namespace: str, name: str) -> Mapping[str, Any]:
        pod = pod_manifest("4", uid=UID, labels=WEB)
        pod["metadata"] |= {"name": name, "namespace": namespace}
        return pod

    def pods_on(self, node: str) -> Sequence[Mapping[str, Any]]:
        return ()

    def bind(self, *_: object) -> None:
        self.meanwhile()
        raise PlacementError("admission webhook denied the Binding")


@pytest.fixture
def kubernetes() -> Refusing:
    return Refusing()


@pytest.fixture
def cluster(database: Database, kubernetes: Refusing) -> Iterator[Client]:
    """A node of 16 CPUs, of which 8 are reserved."""
    body = reservation("kept", template=pod_manifest("8"))
    body["metadata"]["uid"] = RESERVED
    with application_of(database, binders=kubernetes) as application:
        api = cluster_of(Client(application.test_client()), "n1")
        assert api.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
        yield api


BINDING = {"PodName": "web-0", "PodNamespace": "default", "PodUID": UID, "Node": "n1"}


def bind(api: Client) -> None:
    answer = api.post(f"{CLUSTER}/extender/bind", BINDING).json
    assert "admission webhook denied" in answer["Error"]
    assert api.get(f"{PODS}/web-0").status_code == 404


def shown(api: Client) -> dict[str, Any]:
    answer = api.get(f"{CLUSTER}/reservations/kept")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return {name: member for name, member in found.items() if name != "changed_at"}


def test_a_refused_binding_gives_the_reservation_back(cluster: Client, database: Database):
    before = shown(cluster)
    for _ in range(2):
        bind(cluster)
        assert shown(cluster) == before
        check(database, "edge")
    assert cluster.put(f"{PODS}/other", pod_manifest("14")).status_code == 409
    kept = cluster.put(f"{PODS}/web-1", pod_manifest("4", labels=WEB)).json
    assert kept["cpuset"] == "0-3"
    # A pod that is deleted by its owner has used it.
    assert cluster.delete(f"{PODS}/web-1").status_code == 204
    assert shown(cluster)["phase"] == "Succeeded"


def test_what_became_of_it_or_its_room_meanwhile_stands(
    cluster: Client, kubernetes: Refusing, database: Database
):
    kubernetes.meanwhile = lambda: cluster.put(f"{PODS}/other", pod_manifest("12"))
    bind(cluster)
    assert cluster.get(f"{PODS}/other").json["cpuset"] == "4-15"
    assert (shown(cluster)["phase"], shown(cluster)["node"]) == ("Succeeded", None)
    check(database, "edge")
    path = f"{CLUSTER}/reservations/kept"
    assert cluster.delete(f"{PODS}/other").status_code == 204
    assert cluster.delete(path).status_code == 204
    assert cluster.put(path, reservation("kept", template=pod_manifest("8"))).status_code == 201
    kubernetes.meanwhile = lambda: cluster.delete(path)
    bind(cluster)
    assert cluster.get(path).status_code == 404
    check(database, "edge")


def test_a_reservation_does_not_come_back_to_a_port_that_was_taken_meanwhile(
    cluster: Client, kubernetes: Refusing, database: Database
):
    ports = [{"containerPort": 80, "hostPort": 80}]

    def on_port(cpu: str) -> dict[str, Any]:
        pod = pod_manifest(cpu)
        pod["spec"]["containers"][0]["ports"] = ports
        return pod

    path = f"{CLUSTER}/reservations/kept"
    assert cluster.delete(path).status_code == 204
    assert cluster.put(path, reservation("kept", template=on_port("8"))).status_code == 201
    before = shown(cluster)
    bind(cluster)
    assert shown(cluster) == before
    kubernetes.meanwhile = lambda: cluster.put(f"{PODS}/other", on_port("4"))
    bind(cluster)
    assert cluster.get(f"{PODS}/other").json["node"] == "n1"
    assert (shown(cluster)["phase"], shown(cluster)["node"]) == ("Succeeded", None)
    check(database, "edge")


def test_a_pod_that_was_reported_has_used_it(cluster: Client, kubernetes: Refusing, database: Database):
    def reported() -> None:
        pod = dict(kubernetes.pod("default", "web-0"))
        pod["spec"] = {**pod["spec"], "nodeName": "n1"}
        assert cluster.put(f"{PODS}/web-0", pod).status_code == 200

    # What is reported is no claim of the attempt any more, so another caller releases it.
    kubernetes.meanwhile = reported
    cluster.post(f"{CLUSTER}/extender/bind", BINDING)
    assert cluster.delete(f"{PODS}/web-0").status_code == 204
    assert shown(cluster)["phase"] == "Succeeded"
    check(database, "edge")


def test_a_claim_that_is_given_back_unless_it_was_renewed_gives_the_reservation_back(
    cluster: Client, database: Database
):
    """So the synchronization releases claims of pods that were not bound in time."""
    before = shown(cluster)
    assert cluster.put(f"{PODS}/web-1", pod_manifest("4", uid=UID, labels=WEB)).status_code == 201
    (claim,) = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    path = f"{PODS}/web-1?uid={UID}&changed_at={quote(claim['changed_at'])}"
    assert shown(cluster)["phase"] == "Succeeded"
    assert cluster.delete(path.replace("changed_at=20", "changed_at=19")).status_code == 409
    assert shown(cluster)["phase"] == "Succeeded"
    assert cluster.delete(path).status_code == 204
    assert shown(cluster) == before
    check(database, "edge")
