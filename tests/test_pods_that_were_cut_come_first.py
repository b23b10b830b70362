"""Room that others give back belongs to the pods that were cut there, not to the next pod that comes."""

from __future__ import annotations

import pytest

from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.pod_invariants import check

PODS = f"{CLUSTER}/pods/default"
FOREIGN = "00000000-0000-4000-8000-000000000001"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"


@pytest.fixture
def cluster(api: Client) -> Client:
    """A cluster with a node of 16 CPUs."""
    return cluster_of(api, "n1")


def shared(cpu: str, **given) -> dict:
    return pod_manifest(cpu=cpu, qos="LS", priority=None, **given)


def cut(api: Client, cpu: str) -> str:
    """A pod that runs where others hold 10 of 16 CPUs, which they give back then; the uuid of the host."""
    root: str = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["uuid"]
    assert api.claim({root: {"CUSTOM_NODE_CPU_MILLI": 10000}}, FOREIGN).status_code == 204
    assert api.put(f"{PODS}/cut", shared(cpu, node="n1", uid=UID)).status_code == 201
    assert api.used_by(UID)[root]["CUSTOM_NODE_CPU_MILLI"] == 6000
    assert api.delete(f"/allocations/{FOREIGN}").status_code == 204
    return root


def test_a_pod_is_not_placed_in_room_that_is_due_to_another(cluster: Client, database: Database):
    root = cut(cluster, "10")
    assert cluster.post(f"{CLUSTER}/pods/preview", shared("10")).json["fitting"] == 0
    assert cluster.put(f"{PODS}/next", shared("10")).status_code == 409
    assert cluster.put(f"{PODS}/next", shared("6")).status_code == 201
    assert cluster.used_by(UID)[root]["CUSTOM_NODE_CPU_MILLI"] == 10000
    check(database, "edge")


def test_a_pod_that_replaces_one_that_was_cut_gets_no_more_than_there_is(cluster: Client, database: Database):
    cut(cluster, "12")
    assert cluster.put(f"{PODS}/cut", shared("20")).status_code == 409
    assert cluster.put(f"{PODS}/cut", shared("16")).status_code == 200
    check(database, "edge")


def test_placing_gives_threads_back_to_the_pod_they_belong_to(cluster: Client, database: Database):
    numa, _ = cluster.get(f"{CLUSTER}/nodes/n1").json["tree"]["children"]
    core = numa["children"][0]["uuid"]
    assert cluster.claim({core: {"PCPU": 1}}, FOREIGN).status_code == 204
    running = pod_manifest(node="n1", uid=UID, status={"cpuset": "0-3"})
    assert cluster.put(f"{PODS}/cut", running).status_code == 201
    assert cluster.used_by(UID)[core] == {"PCPU": 1}
    assert cluster.delete(f"/allocations/{FOREIGN}").status_code == 204
    assert cluster.put(f"{PODS}/next", pod_manifest(cpu="2")).status_code == 201
    assert cluster.used_by(UID)[core] == {"PCPU": 2}
    check(database, "edge")
