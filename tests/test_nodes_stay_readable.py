"""Settings change and so do the rules for manifests, but the nodes of a cluster can always be read."""

from __future__ import annotations

import pytest

from placement.providers.statements import clusters
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import ALLOCS, CLUSTER, KUBELET, add_nodes, node_manifests, pod_manifest
from tests.pod_invariants import check

PODS = f"{CLUSTER}/pods/default"


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER, {"profile": "design"}).status_code == 201
    add_nodes(api, "good")
    return api


def reported(name: str, field: str) -> dict:
    """A node on which kubelet gave CPUs away; only the profile design understands the field `cpu`."""
    allocs = [{"namespace": "a", "name": "k", "uid": "uk", field: "0-3", "managedByKubelet": True}]
    return node_manifests(name, nrt={ALLOCS: allocs, KUBELET: {"policy": "static"}})


def test_a_profile_under_which_nodes_cannot_be_read_is_refused(cluster: Client):
    for number in range(12):
        answer = cluster.put(f"{CLUSTER}/nodes/odd-{number:02}", reported(f"odd-{number:02}", "cpu"))
        assert answer.status_code == 201
    answer = cluster.put(CLUSTER, {"profile": "koord-scheduler"})
    assert answer.status_code == 409
    text = detail(answer)
    assert text.startswith("profile: 12 nodes of cluster edge cannot be read under profile koord-scheduler")
    words = ("good", "odd-00: ", "odd-09: ", "odd-10", "and 2 more", ALLOCS)
    assert [word for word in words if word in text] == ["odd-00: ", "odd-09: ", "and 2 more", ALLOCS]
    assert cluster.get(CLUSTER).json["profile"] == "design"
    assert cluster.put(f"{PODS}/web", pod_manifest(cpu="2")).status_code == 201
    for number in range(12):
        again = reported(f"odd-{number:02}", "cpuset")
        assert cluster.put(f"{CLUSTER}/nodes/odd-{number:02}", again).status_code == 200
    assert cluster.put(CLUSTER, {"profile": "koord-scheduler"}).status_code == 200
    assert cluster.delete(f"{PODS}/web").status_code == 204


def test_a_node_that_cannot_be_read_any_more_is_imported_again(cluster: Client, database: Database):
    assert cluster.put(f"{CLUSTER}/nodes/odd", reported("odd", "cpu")).status_code == 201
    pod = cluster.put(f"{PODS}/web", pod_manifest(cpu="2", node="odd", status={"cpuset": "4-5"}))
    assert pod.status_code == 201
    with database.write() as transaction:
        stored = clusters.find_cluster(transaction, "edge")
        assert stored is not None
        settings = {**stored.settings, "profile": "koord-scheduler"}
        clusters.update_settings(transaction, stored.id, settings)
    assert cluster.get(f"{CLUSTER}/nodes/odd").status_code == 400
    answer = cluster.put(f"{CLUSTER}/nodes/odd", reported("odd", "cpuset"))
    assert answer.status_code == 200, answer.text
    assert cluster.get(f"{PODS}/web").json == pod.json
    check(database, "edge")
    assert cluster.delete(f"{PODS}/web").status_code == 204
