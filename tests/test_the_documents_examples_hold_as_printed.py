"""The examples of the design documents, as they are printed there, give what the documents say."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.client import Client, detail
from tests.kubernetes import node_manifests, pod_manifest

CLUSTER = "/ext/v1/clusters/edge"

NODE = """\
apiVersion: v1
kind: Node
metadata:
  labels:
    node.koordinator.sh/cpu-bind-policy: "FullPCPUsOnly"
    node.koordinator.sh/numa-topology-alignment-policy: "BestEffort"
    node.koordinator.sh/numa-allocate-strategy: "MostAllocated"
  name: node-0
spec:
  ...
"""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  annotations:
    scheduling.koordinator.sh/resource-spec: |-
      {
        "preferredCPUBindPolicy": "SpreadByPCPUs",
        "preferredCPUExclusivePolicy": "PCPULevel"
      }
    scheduling.koordinator.sh/resource-status: |-
      {
        "cpuset": "0-3"
      }
  name: test-pod
  namespace: default
spec:
  ...
"""

POLICY = """\
{
"kind" : "Policy",
"apiVersion" : "v1",
"priorities" : [
{
"name": "RequestedToCapacityRatioPriority",
"weight": 2,
"argument": {
"requestedToCapacityRatioArguments": {
"shape": [
{"utilization": 0, "score": 0},
{"utilization": 100, "score": 10}
],
"resources": [
{"name": "intel.com/foo", "weight": 3},
{"name": "intel.com/bar", "weight": 5}
]
}
}
}
]
}
"""

RESOURCES = """\
[
{"name": "intel.com/foo", "weight": 5},
{"name": "CPU", "weight": 3},
{"name": "Memory", "weight": 1}
]
"""


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER).status_code == 201
    return api


def put_node(api: Client, text: str, **members: object):
    """A Node as printed, on the usual machine: two NUMA nodes of four cores with two threads."""
    manifests = node_manifests("node-0")
    manifests["node"] |= {**yaml.safe_load(text), **members}
    return api.put(f"{CLUSTER}/nodes/node-0", manifests)


def place(api: Client, name: str, manifest: object) -> str:
    answer = api.put(f"{CLUSTER}/pods/default/{name}", manifest)
    assert answer.status_code == 201, answer.text
    return answer.json["cpuset"]


def test_the_node_with_its_three_labels_fills_the_fuller_numa_node(cluster: Client):
    assert put_node(cluster, NODE, spec={}).status_code == 201
    assert place(cluster, "used", pod_manifest("2")) == "0-1"
    assert place(cluster, "new", pod_manifest("4")) == "2-5"


def test_the_pod_gets_cpus_of_its_own_on_cores_of_their_own(cluster: Client):
    """What it was given elsewhere does not count before it runs."""
    assert put_node(cluster, NODE, spec={}, metadata={"name": "node-0", "uid": "1"}).status_code == 201
    asked, printed = pod_manifest("4"), yaml.safe_load(POD)
    asked["metadata"] |= {**printed["metadata"], "labels": asked["metadata"]["labels"]}
    assert place(cluster, "test-pod", asked) == "0,2,4,6"


def test_dots_in_the_place_of_a_spec_are_named(cluster: Client):
    """Without its spec a pod cannot be placed; a node takes pods as if it had none."""
    refused = cluster.put(f"{CLUSTER}/pods/default/test-pod", POD.encode(), Content_Type="application/yaml")
    assert refused.status_code == 400
    assert "Pod.spec: must be a mapping, not '...'" in detail(refused)
    taken = cluster.put(f"{CLUSTER}/nodes/node-0", NODE.encode(), Content_Type="application/yaml")
    assert taken.status_code == 201
    assert "Node.spec: must be a mapping, not '...'; ignored" in taken.json["warnings"]


@pytest.fixture
def used(cluster: Client) -> Client:
    """The two nodes of the worked example, with what is used of them."""
    for name, total, cpu, memory, foo in (
        ("node-1", "4", "1", "256Mi", "1"),
        ("node-2", "8", "6", "512Mi", "2"),
    ):
        offered = {"cpu": "8", "memory": "1Gi", "intel.com/foo": total, "intel.com/bar": "8"}
        assert (
            cluster.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, zones={}, **offered)).status_code
            == 201
        )
        running = pod_manifest(cpu, memory, qos=None, requests={"intel.com/foo": foo}, node=name)
        assert cluster.put(f"{CLUSTER}/pods/default/on-{name}", running).status_code == 201
    return cluster


def scores(api: Client, policy: object, requests: dict[str, str]) -> dict[str, int]:
    """The score of each node for a pod that requests 2 CPUs, 256 MB and these."""
    assert api.put(CLUSTER, {"scoring": policy}).status_code == 200
    asked = pod_manifest("2", "256Mi", qos=None, requests=requests)
    answer = api.post(f"{CLUSTER}/pods/preview", asked)
    assert answer.status_code == 200, answer.text
    return {node["name"]: node["score"] for node in answer.json["nodes"]}


def test_the_policy_gives_the_nodes_of_the_example_5_and_7(used: Client):
    policy = json.loads(POLICY)
    arguments = policy["priorities"][0]["argument"]["requestedToCapacityRatioArguments"]
    arguments["resources"] = json.loads(RESOURCES)
    assert scores(used, policy, {"intel.com/foo": "2"}) == {"node-1": 5, "node-2": 7}


def test_the_policy_as_printed_weighs_foo_and_bar(used: Client):
    """By the same arithmetic: 7 and 5 for foo on node-1, half of bar; 5 for both on node-2."""
    asked = {"intel.com/foo": "2", "intel.com/bar": "4"}
    assert scores(used, json.loads(POLICY), asked) == {"node-1": 6, "node-2": 5}
