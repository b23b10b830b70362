"""Nodes of any shape are taken, and pods get CPUs of their own there: VMs, offline threads, unlike cores."""

from __future__ import annotations

import pytest

from benchmarks.cluster import cpus_of, fill
from tests.client import Client
from tests.kubernetes import BIND, CLUSTER, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

# A virtual machine as hypervisors make it: eight sockets of one core, one NUMA node.
VM = cpus_of("vm")
# Sixteen CPUs of which the last is offline: its core has one thread.
OFFLINE = tuple((core + 8 * thread, core, core // 4, core // 4) for thread in range(2) for core in range(8))[
    :15
]
# Two cores of two threads and four of one.
HYBRID = tuple((cpu, cpu // 2 if cpu < 4 else cpu - 2, 0, 0) for cpu in range(8))


def taken(api: Client, profile: str = "design", **node: object) -> list[str]:
    """The warnings of a node, which is taken."""
    assert api.put(CLUSTER, {"profile": profile}).status_code == 201
    answer = api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", **node))
    assert answer.status_code == 201, answer.text
    return answer.json["warnings"]


def placed(api: Client, name: str, cpu: str, policy: str = "FullPCPUs", **pod: object) -> str | None:
    """The CPUs that a pod is given; None if it fits nowhere."""
    manifest = pod_manifest(cpu, spec={"requiredCPUBindPolicy": policy}, **pod)
    answer = api.put(f"{CLUSTER}/pods/default/{name}", manifest)
    assert answer.status_code in (201, 409), answer.text
    return answer.json["cpuset"] if answer.status_code == 201 else None


@pytest.mark.parametrize("profile", ["design", "koord-scheduler"])
def test_machines_with_more_sockets_than_numa_nodes_take_pods(api, profile):
    warnings = taken(api, profile, rows=VM)
    assert [each for each in warnings if "sockets" in each] == [
        "NodeResourceTopology.metadata.annotations[node.koordinator.sh/cpu-topology]: NUMA node 0 lies in "
        "sockets 0-7, which count as one socket"
    ]
    assert placed(api, "bound", "4") == "0-3"
    assert placed(api, "spread", "2", "SpreadByPCPUs") == "4-5"
    shared = api.put(f"{CLUSTER}/pods/default/shared", pod_manifest("500m", qos="LS"))
    assert shared.json["containers"][0]["cpuset"] == "6-7"
    node = api.get(f"{CLUSTER}/nodes/n1").json
    assert [cpu["socket"] for cpu in node["cpus"]] == list(range(8))
    assert node["ls_pools"] == [{"socket": 0, "node": 0, "cpuset": "6-7"}]


def test_an_aligned_pod_of_a_machine_with_many_sockets_names_the_pool_of_its_numa_node(api):
    taken(api, rows=VM, policies=["SingleNUMANodePodLevel"])
    answer = api.put(f"{CLUSTER}/pods/default/shared", pod_manifest("2", qos="LS"))
    assert answer.status_code == 201, answer.text
    assert '"cpuSharedPools":[{"socket":0,"node":0}]' in "".join(answer.json["annotations"].values())


def test_the_drawing_of_a_host_has_one_box_for_sockets_that_count_as_one(api):
    taken(api, rows=VM)
    provider = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["uuid"]
    page = api.get(f"/ui/hosts/{provider}")
    assert page.status_code == 200
    assert page.text.count("sockets 0-7") == 1


def test_a_node_with_an_offline_thread_takes_pods_on_its_whole_cores(api):
    assert not [each for each in taken(api, rows=OFFLINE) if "cores differ" in each]
    assert placed(api, "first", "2") == "0,8"
    assert placed(api, "second", "4") == "4-5,12-13"
    assert placed(api, "third", "8") == "1-3,6,9-11,14"
    assert placed(api, "none", "2") is None
    assert placed(api, "single", "1") == "7"


@pytest.mark.parametrize("cpu", ["2", "4", "8", "14", "15"])
def test_all_whole_cores_of_a_node_with_an_offline_thread_can_go_to_one_pod(api, cpu):
    taken(api, rows=OFFLINE)
    assert placed(api, "pod", cpu) is not None


def test_the_average_counts_for_the_scheduler_and_is_warned_of(api):
    warnings = taken(api, "koord-scheduler", rows=OFFLINE)
    assert any("cores differ in their threads; a whole core counts 1" in each for each in warnings)
    assert placed(api, "pod", "2") is None


def test_a_node_that_gives_whole_cores_only_gives_cores_of_both_kinds(api):
    taken(api, rows=HYBRID, labels={BIND: "FullPCPUsOnly"})
    assert placed(api, "fast", "4") == "0-3"
    assert placed(api, "slow", "3") == "4-6"
    assert placed(api, "rest", "1") == "7"
    shown = api.get(f"{CLUSTER}/nodes/n1").json
    assert shown["resources"]["PCPU"] == {"capacity": 8, "used": 8}


def discovered(
    policy: str | None = "single-numa-node", scope: str = "pod", **more: object
) -> dict[str, object]:
    """A node as the topology updater of Node Feature Discovery reports it: amounts by zone, no CPU ids."""
    zones = [
        {
            "name": f"node-{numa}",
            "type": "Node",
            "costs": [{"name": f"node-{other}", "value": 10 if other == numa else 21} for other in (0, 1)],
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": "7", "available": "3"},
                {"name": "memory", "capacity": "17179869184", "allocatable": "17179869184", "available": "0"},
                {"name": "nvidia.com/gpu", "capacity": "1", "allocatable": numa, "available": "0"},
            ],
        }
        for numa in (0, 1)
    ]
    manifests = node_manifests("n1")
    manifests["node"]["status"]["allocatable"] |= {"nvidia.com/gpu": "1", "cpu": "14"}
    attributes = [
        {"name": "topologyManagerScope", "value": scope},
        {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v0011fe53c4dbc2c3a2b"},
        *([{"name": "topologyManagerPolicy", "value": policy}] if policy else []),
    ]
    manifests["nodeResourceTopology"] = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "attributes": attributes,
        "zones": zones,
        **more,
    }
    return manifests


@pytest.mark.parametrize("profile", ["design", "koord-scheduler"])
def test_topologies_of_node_feature_discovery_align_shared_pods_and_bind_none(api, profile):
    assert api.put(CLUSTER, {"profile": profile}).status_code == 201
    answer = api.put(f"{CLUSTER}/nodes/n1", discovered())
    assert answer.status_code == 201, answer.text
    (warning,) = [each for each in answer.json["warnings"] if "NodeResourceTopology" in each]
    assert warning.endswith("no CPUs are reported; the host cannot take bound pods")
    numa = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["children"]
    assert [each["resources"]["CUSTOM_CPU_MILLI"]["total"] for each in numa] == [7000, 7000]
    # The zone with the GPU has the pod as a whole; the other one still has seven CPUs.
    shared = api.put(
        f"{CLUSTER}/pods/default/gpu", pod_manifest("6", qos="LS", requests={"nvidia.com/gpu": "1"})
    )
    assert shared.status_code == 201, shared.text
    assert '"node":1' in shared.json["annotations"]["scheduling.koordinator.sh/resource-status"]
    for name, status in (("more", 201), ("too-much", 409)):
        answer = api.put(f"{CLUSTER}/pods/default/{name}", pod_manifest("7", qos="LS"))
        assert answer.status_code == status, answer.text
    bound = api.put(f"{CLUSTER}/pods/default/bound", pod_manifest("1"))
    assert bound.status_code == 409
    assert "node(s) invalid CPU Topology" in bound.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"policy": "none", "topologyPolicies": ["Restricted"]}, None),
        ({"policy": "best-effort"}, "BEST_EFFORT"),
        ({"policy": "restricted", "scope": "container"}, "RESTRICTED"),
        ({"policy": "single-numa-node"}, "SINGLE_NUMA_NODE"),
        ({"policy": None, "topologyPolicies": ["SingleNUMANodePodLevel"]}, "SINGLE_NUMA_NODE"),
        ({"policy": "many"}, None),
    ],
)
def test_the_policy_of_the_topology_manager_is_read(api, reported, expected):
    api.put(CLUSTER)
    answer = api.put(f"{CLUSTER}/nodes/n1", discovered(**reported))
    assert answer.status_code == 201, answer.text
    traits = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["traits"]
    prefix = "CUSTOM_KOORD_NUMA_POLICY_"
    assert [each for each in traits if each.startswith(prefix)] == ([prefix + expected] if expected else [])
    warnings = " ".join(answer.json["warnings"])
    assert ("'container' aligns whole pods" in warnings) == (reported.get("scope") == "container")
    assert ("'many' is not understood; ignored" in warnings) == (reported["policy"] == "many")
    # Sent again it changes nothing, and a list leaves it alone.
    again = api.put(f"{CLUSTER}/nodes/n1", discovered(**reported)).json
    assert again["created"] == again["changed"] == again["deleted"] == []


def test_all_nodes_of_a_made_up_cluster_are_taken(api):
    filled = fill(lambda method, path, body: api.call(method, path, body).data, 20)
    assert [each["status"] for each in filled.nodes] == [201] * 20


@pytest.mark.parametrize(("cpu", "memory"), [("4 ", " 1Gi"), (" 4", "1Gi\n"), ("4", None)])
def test_quantities_are_read_as_kubernetes_reads_them(api, cpu, memory):
    """With blanks around them; null is nothing."""
    manifests = node_manifests("n1", ephemeral_storage="10Gi", pods=" 5 ")
    manifests["node"]["status"]["allocatable"]["hugepages-1Gi"] = None
    assert api.put(CLUSTER).status_code == 201
    answer = api.put(f"{CLUSTER}/nodes/n1", manifests)
    assert answer.status_code == 201, answer.text
    assert api.get(f"{CLUSTER}/nodes/n1").json["resources"]["CUSTOM_PODS"]["capacity"] == 5
    pod = pod_manifest("4")
    amounts = {"cpu": cpu, "memory": memory}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": dict(amounts)}
    placed = api.put(f"{CLUSTER}/pods/default/web", pod)
    assert placed.status_code == 201, placed.text
    assert placed.json["cpuset"] == "0-3"
