"""The providers of a node stay as its import made them, and what others put below them stays theirs."""

from __future__ import annotations

import pytest
from flask import Flask

from placement.http.registry import registry_of
from placement.pods.store import statements
from placement.pods.store.cache import ClusterCache
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, ROWS, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import check, check_image, loaded, nothing_is_held

NODE = f"{CLUSTER}/nodes/n1"
POD = f"{CLUSTER}/pods/default/web"


@pytest.fixture
def cluster(api: Client) -> Client:
    """A node with a pod."""
    cluster_of(api, "n1")
    assert api.put(POD, pod_manifest(cpu="2")).status_code == 201
    return api


def provider(api: Client, path: str) -> dict:
    """A provider of the node as the Placement API shows it."""
    found: dict = api.get(f"/resource_providers?name=edge/n1{path}").json["resource_providers"][0]
    return found


@pytest.mark.parametrize("path", ["", "/numa-0", "/core-0-0"])
def test_they_are_not_renamed_or_moved(cluster: Client, database: Database, path: str):
    elsewhere = cluster.provider("elsewhere")
    target = provider(cluster, path)
    own = {"name": target["name"], "parent_provider_uuid": target["parent_provider_uuid"]}
    for change in ({"name": "renamed"}, {"parent_provider_uuid": elsewhere}):
        answer = cluster.put(f"/resource_providers/{target['uuid']}", {**own, **change})
        assert answer.status_code == 409
        assert "It belongs to node edge/n1" in detail(answer)
    assert cluster.put(f"/resource_providers/{target['uuid']}", own).status_code == 200
    assert cluster.put(NODE, node_manifests("n1")).status_code == 200
    check(database, "edge")
    assert cluster.delete(POD).status_code == 204
    assert nothing_is_held(database)


def test_they_are_not_deleted(cluster: Client):
    core = provider(cluster, "/core-1-7")["uuid"]
    answer = cluster.delete(f"/resource_providers/{core}")
    assert answer.status_code == 409
    assert "It belongs to node edge/n1" in detail(answer)
    assert cluster.put(POD, pod_manifest(cpu="16")).status_code == 200


def test_what_others_put_below_a_node_is_theirs(cluster: Client):
    nic = cluster.provider("nic", provider(cluster, "")["uuid"], VGPU=4)
    fan = cluster.provider("fan", provider(cluster, "/numa-0")["uuid"])
    answer = cluster.put(NODE, node_manifests("n1"))
    assert (answer.status_code, answer.json["deleted"]) == (200, [])
    assert cluster.get(f"/resource_providers/{nic}/inventories").json["inventories"]["VGPU"]["total"] == 4
    body = {"name": "spare nic", "parent_provider_uuid": provider(cluster, "/numa-1")["uuid"]}
    assert cluster.put(f"/resource_providers/{nic}", body).status_code == 200
    assert cluster.delete(f"/resource_providers/{fan}").status_code == 204
    assert cluster.delete(POD).status_code == 204
    assert cluster.delete(NODE).status_code == 204
    assert cluster.get(f"/resource_providers/{nic}").status_code == 404


def test_what_is_used_of_it_is_no_use_of_the_node(cluster: Client, application: Flask, database: Database):
    """The image that was kept in step is what a fresh one is, and no room is taken for what a pod lacks."""
    cluster_cache = registry_of(application)[ClusterCache]
    nic = cluster.provider("nic", provider(cluster, "")["uuid"], VGPU=4)
    assert cluster.claim({nic: {"VGPU": 4}}).status_code == 204
    check_image(loaded(database, "edge"), cluster_cache, "edge")
    manifest = pod_manifest(cpu="2")
    manifest["metadata"]["name"] = "other"
    assert cluster.put(f"{CLUSTER}/pods/default/other", manifest).status_code == 201
    check_image(loaded(database, "edge"), cluster_cache, "edge")
    (state,) = cluster_cache.snapshot("edge").nodes.values()
    assert not state.others
    with database.write() as transaction:
        locked = statements.lock_with_use(transaction, [state.root_id], state.cluster_id, None)
    (held,) = locked.values()
    assert held.used == state.due
    check(database, "edge")


def test_nothing_disappears_above_what_others_put_there(cluster: Client):
    led = cluster.provider("led", provider(cluster, "/core-1-7")["uuid"])
    smaller = node_manifests("n1", rows=ROWS[:14])
    answer = cluster.put(NODE, smaller)
    assert answer.status_code == 409
    assert "edge/n1/core-1-7 would disappear above led" in detail(answer)
    assert cluster.delete(f"/resource_providers/{led}").status_code == 204
    assert cluster.put(NODE, smaller).status_code == 200
