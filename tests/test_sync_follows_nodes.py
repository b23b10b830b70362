"""`placement sync kubernetes`: nodes and their topologies, as they come, change and go."""

from __future__ import annotations

from tests.service import Service
from tests.synchronizing import eventually, join, node_manifests, offer_pods


def test_once_makes_the_cluster_what_kubernetes_has(around, api_server):
    for number in range(5):
        join(api_server, f"host-{number}")
    first = around.once()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[-1] == "nodes 5, pods 0, rejected 0"
    assert around.nodes() == [f"host-{number}" for number in range(5)]
    assert around.cores("host-3") == 32
    api_server.delete("Node", "host-1")
    api_server.delete("NodeResourceTopology", "host-1")
    again = around.once()
    assert again.stdout == "nodes 4, pods 0, rejected 0\n"
    assert around.nodes() == ["host-0", "host-2", "host-3", "host-4"]


def test_topologies_are_followed_in_the_version_that_kubernetes_offers(around, api_server):
    api_server.topology_version = "v1alpha2"
    _, topology = join(api_server, "host-0")
    del topology["metadata"]["annotations"]
    topology |= {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
    }
    api_server.put(topology)

    def numa_nodes() -> list:
        return [
            each["resources"]["MEMORY_MB"]["total"] for each in around.shown("host-0")["tree"]["children"]
        ]

    with around.running():
        eventually(["host-0"], around.nodes)
        assert len(numa_nodes()) == 2
        imported_at = around.shown("host-0")["imported_at"]
        # What pods use changes all the time.
        topology["zones"][0]["resources"][1]["available"] = "0"
        topology["attributes"].append({"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001"})
        api_server.put(topology)
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)
        assert around.shown("host-0")["imported_at"] == imported_at
        topology["zones"][0]["resources"][1]["allocatable"] = "1Gi"
        api_server.put(topology)
        eventually(1024, lambda: numa_nodes()[0])


def test_nodes_appear_change_and_vanish(around, api_server):
    node, topology = join(api_server, "host-0")
    with around.running() as sync:
        eventually(["host-0"], around.nodes)
        other, _ = join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)
        api_server.put(offer_pods(node, 99))
        eventually(99, lambda: around.pods_offered("host-0"))
        topology["zones"][0]["resources"][1]["allocatable"] = "1Gi"
        api_server.put(topology)
        eventually(
            1024, lambda: around.shown("host-0")["tree"]["children"][0]["resources"]["MEMORY_MB"]["total"]
        )
        api_server.delete("NodeResourceTopology", "host-0")
        eventually(0, lambda: around.cores("host-0"))
        api_server.delete("Node", "host-0")
        eventually(["host-1"], around.nodes)
        # The next call is sent after the answer to the one before was read.
        api_server.put(offer_pods(other, 98))
        eventually(98, lambda: around.pods_offered("host-1"))
        sync.end()
        assert "stopped: nodes 1, pods 0, rejected 0" in sync.said


def test_a_heartbeat_is_not_worth_a_call(around, api_server):
    node, _ = join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], around.nodes)
        imported_at = around.shown("host-0")["imported_at"]
        node["status"]["conditions"][3]["lastHeartbeatTime"] = "2026-05-17T09:00:00Z"
        node["metadata"]["managedFields"] = [{"manager": "kubelet"}]
        api_server.put(node)
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)
    assert around.shown("host-0")["imported_at"] == imported_at


def test_a_bad_manifest_is_named_and_does_not_stop_the_rest(around, api_server):
    node, topology = node_manifests("host-0")
    node["status"]["allocatable"]["cpu"] = "many"
    api_server.put(topology)
    api_server.put(node)
    join(api_server, "host-1")
    once = around.once()
    assert once.returncode == 1
    assert once.stdout.splitlines()[-1] == "nodes 1, pods 0, rejected 1"
    (line,) = once.stderr.splitlines()
    assert line.startswith("node host-0: rejected: ")
    assert "allocatable.cpu" in line
    (event,) = api_server.told
    assert (event["involvedObject"]["name"], event["type"]) == ("host-0", "Warning")
    assert event["message"] in line
    with around.running() as sync:
        eventually(True, lambda: "rejected 1" in sync.said)
        node["status"]["conditions"] = []
        api_server.put(node)
        join(api_server, "host-2")
        eventually(["host-1", "host-2"], around.nodes)
        # Nothing that matters changed, so nobody was bothered again.
        assert sync.said.count("rejected: ") == 1
        node["status"]["allocatable"]["cpu"] = "64"
        api_server.put(node)
        eventually(["host-0", "host-1", "host-2"], around.nodes)
        eventually(True, lambda: "node host-0: well again" in sync.said)


def test_a_conflict_is_tried_again_until_there_is_room(around, api_server):
    join(api_server, "host-0")
    assert around.once().returncode == 0
    service = Service(around.url)
    root = around.shown("host-0")["tree"]["uuid"]
    consumer = "1a2b3c4d-0000-4000-8000-00000000000a"
    body = {"allocations": {root: {"resources": {"CUSTOM_PODS": 1}}}, "consumer_type": "INSTANCE"}
    labels = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    service.must("PUT", f"/allocations/{consumer}", {**body, **labels})
    with around.running() as sync:
        api_server.delete("Node", "host-0")
        eventually(True, lambda: f"consumer {consumer}" in sync.said)
        assert around.nodes() == ["host-0"]
        service.must("DELETE", f"/allocations/{consumer}")
        eventually([], around.nodes)


def test_a_machine_that_was_replaced_gets_a_new_tree(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], around.nodes)
        before = around.shown("host-0")["tree"]["uuid"]
        node, _ = node_manifests("host-0")
        api_server.put(node)
        eventually(True, lambda: around.shown("host-0")["tree"]["uuid"] != before)


def test_without_the_custom_resource_nodes_come_without_cores(around, api_server):
    api_server.unknown_kinds.add("NodeResourceTopology")
    join(api_server, "host-0")
    once = around.once()
    assert once.returncode == 0
    assert once.stderr.count("knows no NodeResourceTopology") == 1
    assert around.cores("host-0") == 0
    with around.running() as sync:
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)
    assert sync.said.count("knows no NodeResourceTopology") == 1
