"""The cloud and the cluster of `benchmarks` fill a service, and have what they describe."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cluster as kubernetes
from benchmarks.cloud import DISABLED, GPU, Cloud
from tests.client import Client

pytestmark = pytest.mark.one_database


@pytest.fixture(name="send")
def _send(api: Client) -> Any:
    def send(method: str, path: str, body: Any) -> Any:
        answer = api.call(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json if answer.data else None

    return send


def test_a_cloud_has_what_years_of_use_leave_behind(api: Client, send: Any):
    cloud = Cloud(40)
    cloud.fill(send)
    hosts = api.get("/ext/v1/hosts").json["hosts"]
    # A provider without inventory is a host as well.
    assert len(hosts) == len(cloud.hosts) + 1
    disabled = api.get(f"/resource_providers?required={DISABLED}").json["resource_providers"]
    assert {each["uuid"] for each in disabled} == {each.root.uuid for each in cloud.hosts if each.is_disabled}
    gpus = api.get(f"/resource_providers?resources={GPU}:1").json["resource_providers"]
    assert gpus
    for migration in cloud.migrations:
        assert api.get(f"/allocations/{migration.uuid}").json["consumer_type"] == "MIGRATION"
    assert len(api.used_by(cloud.on_two_hosts.uuid)) == 2
    (overfull,) = cloud.overfull
    usages = api.get(f"/resource_providers/{overfull.root.uuid}/usages").json["usages"]
    inventories = api.get(f"/resource_providers/{overfull.root.uuid}/inventories").json["inventories"]
    memory = inventories["MEMORY_MB"]
    assert usages["MEMORY_MB"] > memory["total"] - memory["reserved"]
    assert {each["ID"] for each in cloud.instances()} >= {each.uuid for each in cloud.consumers}


def test_each_run_makes_the_same_cloud():
    one, other = Cloud(20), Cloud(20)
    assert [each.uuid for each in one.consumers] == [each.uuid for each in other.consumers]
    assert one.aggregates == other.aggregates


def test_a_cluster_has_nodes_of_five_kinds(api: Client, send: Any):
    filled = kubernetes.fill(send, 10)
    kinds = {each["name"].partition("-")[0] for each in filled.nodes}
    assert kinds == {"vm", "two", "sixteen", "gpu", "offline"}
    taken = {each["name"].partition("-")[0] for each in filled.nodes if each["status"] == 201}
    # A machine with a socket for each core has more sockets than NUMA nodes, which is not read yet.
    assert taken >= kinds - {"vm"}
    placed = [each for each in filled.pods if each["status"] == 201]
    listed = api.get(f"/ext/v1/clusters/{kubernetes.CLUSTER}/pods").json["pods"]
    assert len(listed) == len(placed) > 100
    nodes = api.get(f"/ext/v1/clusters/{kubernetes.CLUSTER}/nodes").json["nodes"]
    assert len(nodes) == len([each for each in filled.nodes if each["status"] == 201])
