"""Pods that run somewhere already are facts: recorded, never refused, and never lost."""

from __future__ import annotations

import pytest

from tests.client import Client, detail
from tests.kubernetes import ALLOCS, BIND, KUBELET, RATIO, ROWS, STATUS, node_manifests, pod_manifest

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"
OTHER_UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d22"


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER).status_code == 201
    node(api, "n1")
    return api


def node(api: Client, name: str, status: int = 201, **given) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
    assert answer.status_code == status, answer.text


def put(api: Client, name: str, manifest: dict, status: int = 201) -> dict:
    answer = api.put(f"{PODS}/default/{name}", manifest)
    assert answer.status_code == status, answer.text
    return answer.json


def held(api: Client, consumer: str) -> dict[str, dict[str, int]]:
    body = api.get(f"/allocations/{consumer}").json
    return {
        api.get(f"/resource_providers/{uuid}").json["name"].removeprefix("edge/"): entry["resources"]
        for uuid, entry in body["allocations"].items()
    }


def usages(api: Client, name: str = "n1") -> dict[str, int]:
    resources = api.get(f"{CLUSTER}/nodes/{name}").json["resources"]
    return {key: entry["used"] for key, entry in resources.items() if entry["used"]}


def test_the_status_of_a_running_pod_is_believed(cluster):
    pod = put(cluster, "web", pod_manifest(cpu="4", node="n1", status={"cpuset": "1,3,5,7"}, phase="Running"))
    assert (pod["node"], pod["cpuset"], pod["scheduled"], pod["phase"]) == ("n1", "1,3,5,7", False, "Running")
    assert held(cluster, pod["consumer_uuid"])["n1/core-0-0"] == {"PCPU": 1}
    full = pod_manifest(cpu="8", spec={"requiredCPUBindPolicy": "FullPCPUs"})
    assert put(cluster, "full", full)["cpuset"] == "8-15"


def test_reporting_again_changes_nothing(cluster):
    manifest = pod_manifest(node="n1", status={"cpuset": "0-3"})
    first = put(cluster, "web", manifest)
    before = cluster.get(f"{CLUSTER}/nodes/n1").json
    assert put(cluster, "web", manifest, 200) == first
    assert cluster.get(f"{CLUSTER}/nodes/n1").json == before


def test_numa_amounts_of_a_status_are_recorded(cluster):
    status = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "2500m", "memory": "1Gi"}}]}
    pod = put(cluster, "ls", pod_manifest(cpu="2500m", qos="LS", priority=None, node="n1", status=status))
    assert held(cluster, pod["consumer_uuid"])["n1/numa-1"] == {"CUSTOM_CPU_MILLI": 2500, "MEMORY_MB": 1024}


def test_a_pod_that_ended_is_released_and_stays_listed(cluster):
    put(cluster, "job", pod_manifest(node="n1", status={"cpuset": "0-3"}, uid=UID))
    ended = put(cluster, "job", pod_manifest(node="n1", uid=UID, phase="Succeeded"), 200)
    assert (ended["node"], ended["cpuset"], ended["phase"]) == (None, "", "Succeeded")
    assert usages(cluster) == {}
    assert cluster.get(f"{PODS}/default/job").json == ended
    assert cluster.get(f"/allocations/{UID}").json["allocations"] == {}
    assert cluster.delete(f"{PODS}/default/job").status_code == 204


def test_a_cluster_with_ended_pods_only_can_be_deleted(cluster):
    put(cluster, "job", pod_manifest(node="n1", phase="Failed"))
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert cluster.delete(CLUSTER).status_code == 204


def test_a_pod_that_was_placed_keeps_its_cpus_until_a_status_says_otherwise(cluster):
    placed = put(cluster, "web", pod_manifest(uid=UID))
    reported = put(cluster, "web", pod_manifest(uid=UID, node="n1"), 200)
    assert reported["cpuset"] == placed["cpuset"] == "0-3"
    assert reported["annotations"] == placed["annotations"]
    moved = put(cluster, "web", pod_manifest(uid=UID, node="n1", status={"cpuset": "8-11"}), 200)
    assert moved["cpuset"] == "8-11"
    assert put(cluster, "next", pod_manifest())["cpuset"] == "0-3"


def test_a_pod_that_runs_elsewhere_moves_there(cluster):
    node(cluster, "n2")
    put(cluster, "web", pod_manifest(uid=UID))
    moved = put(cluster, "web", pod_manifest(uid=UID, node="n2", status={"cpuset": "0-3"}), 200)
    assert moved["node"] == "n2"
    assert usages(cluster, "n1") == {}
    assert usages(cluster, "n2")["PCPU"] == 4


def test_an_unreadable_status_keeps_others_from_being_bound_there(cluster):
    odd = put(cluster, "odd", pod_manifest(node="n1", status="{"))
    assert odd["unreadable"]
    answer = cluster.put(f"{PODS}/default/web", pod_manifest())
    assert answer.status_code == 409
    assert "node(s) have pods with unreadable resource-status: default/odd" in detail(answer)
    put(cluster, "shared", pod_manifest(qos="LS", priority=None))
    manifest = pod_manifest(node="n1", status={"cpuset": "0-3"})
    assert put(cluster, "odd", manifest, 200)["unreadable"] == []
    assert put(cluster, "web", pod_manifest())["cpuset"] == "8-11"


def test_a_running_pod_is_recorded_whatever_admission_says(cluster):
    manifest = pod_manifest(cpu="1500m", node="n1", status={"cpuset": "0-1"}, priority=5500)
    pod = put(cluster, "web", manifest)
    assert any("must be integer" in warning for warning in pod["warnings"])
    assert put(cluster, "next", pod_manifest(cpu="14"))["cpuset"] == "2-15"


def test_what_must_not_change_is_refused_and_nothing_is_lost(cluster):
    pod = put(cluster, "web", pod_manifest(node="n1", uid=UID, status={"cpuset": "0-3"}))
    answer = cluster.put(f"{PODS}/default/web", pod_manifest(node="n1", uid=UID, qos="LS"))
    assert answer.status_code == 400
    assert "field is immutable" in detail(answer)
    assert cluster.get(f"{PODS}/default/web").json == pod


def test_an_unknown_node_is_named(cluster):
    answer = cluster.put(f"{PODS}/default/web", pod_manifest(node="n9"))
    assert answer.status_code == 400
    assert "Pod.spec.nodeName" in detail(answer)
    assert "n9" in detail(answer)


def test_overlapping_pods_are_counted_once_and_the_later_one_inherits(cluster):
    put(cluster, "first", pod_manifest(node="n1", uid=UID, status={"cpuset": "0-3"}))
    second = put(cluster, "second", pod_manifest(node="n1", uid=OTHER_UID, status={"cpuset": "2-5"}))
    assert "CPUs 2-3 are held by pod default/first, too" in second["warnings"]
    assert usages(cluster)["PCPU"] == 6
    assert cluster.delete(f"{PODS}/default/first").status_code == 204
    assert held(cluster, OTHER_UID)["n1/core-0-1"] == {"PCPU": 2}
    assert usages(cluster)["PCPU"] == 4
    assert cluster.delete(f"{PODS}/default/second").status_code == 204
    assert usages(cluster) == {}


def test_a_node_that_is_too_small_is_never_counted_beyond_what_it_has(cluster):
    node(cluster, "n1", 200, cpu="6")
    put(cluster, "first", pod_manifest(cpu="4", node="n1", uid=UID, status={"cpuset": "0-3"}))
    put(cluster, "second", pod_manifest(cpu="4", node="n1", uid=OTHER_UID, status={"cpuset": "4-7"}))
    assert usages(cluster)["CUSTOM_NODE_CPU_MILLI"] == 6000
    assert cluster.delete(f"{PODS}/default/first").status_code == 204
    assert held(cluster, OTHER_UID)["n1"]["CUSTOM_NODE_CPU_MILLI"] == 4000


def test_cpus_that_do_not_exist_are_left_out_with_a_warning(cluster):
    pod = put(cluster, "web", pod_manifest(node="n1", status={"cpuset": "14-17"}))
    assert any("16-17" in warning for warning in pod["warnings"])
    assert usages(cluster)["PCPU"] == 2


def kubelet_allocs(*entries: tuple[str, str]) -> dict:
    allocs = [
        {"namespace": "kube", "name": f"k{uid[-1]}", "uid": uid, "cpuset": cpus, "managedByKubelet": True}
        for uid, cpus in entries
    ]
    return {ALLOCS: allocs, KUBELET: {"policy": "static"}}


def test_cpus_of_kubelet_are_allocations_of_their_pods(cluster):
    node(cluster, "n1", 200, nrt=kubelet_allocs((UID, "0-3")))
    consumer = cluster.get(f"/allocations/{UID}").json
    assert (consumer["consumer_type"], consumer["user_id"]) == ("KUBELET", "kubelet")
    assert held(cluster, UID) == {"n1/core-0-0": {"PCPU": 2}, "n1/core-0-1": {"PCPU": 2}}
    resources = cluster.get(f"{CLUSTER}/nodes/n1").json["resources"]
    assert resources["PCPU"] == {"capacity": 16, "used": 4}
    assert resources["CUSTOM_CPU_MILLI"] == {"capacity": 12000, "used": 0}
    assert put(cluster, "web", pod_manifest(cpu="4"))["cpuset"] == "8-11"
    assert put(cluster, "web2", pod_manifest(cpu="8"))["cpuset"] == "4-7,12-15"


def test_kubelet_gives_cpus_back_with_the_next_report(cluster):
    node(cluster, "n1", 200, nrt=kubelet_allocs((UID, "0-3"), (OTHER_UID, "4-5")))
    node(cluster, "n1", 200, nrt=kubelet_allocs((OTHER_UID, "4-5")))
    assert cluster.get(f"/allocations/{UID}").json["allocations"] == {}
    assert usages(cluster) == {"PCPU": 2}
    node(cluster, "n1", 200)
    assert usages(cluster) == {}
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 204


def test_a_node_with_kubelets_cpus_only_can_be_deleted(cluster):
    node(cluster, "n1", 200, nrt=kubelet_allocs((UID, "0-3")))
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert cluster.get(f"/allocations/{UID}").json["allocations"] == {}


def test_a_kubelet_pod_that_is_recorded_is_the_same_consumer(cluster):
    node(cluster, "n1", 200, nrt=kubelet_allocs((UID, "0-3")))
    pod = put(cluster, "k1", pod_manifest(cpu="4", qos=None, priority=None, uid=UID, node="n1"))
    assert pod["consumer_uuid"] == UID
    assert cluster.get(f"/allocations/{UID}").json["consumer_type"] == "POD"
    assert held(cluster, UID)["n1"]["CUSTOM_NODE_CPU_MILLI"] == 4000
    assert held(cluster, UID)["n1/core-0-1"] == {"PCPU": 2}
    assert usages(cluster)["PCPU"] == 4
    assert cluster.delete(f"{PODS}/default/k1").status_code == 204
    assert cluster.get(f"/allocations/{UID}").json["consumer_type"] == "KUBELET"
    assert usages(cluster) == {"PCPU": 4}


def test_kubelet_and_a_recorded_pod_on_the_same_cpus_are_counted_once(cluster):
    put(cluster, "web", pod_manifest(cpu="16"))
    node(cluster, "n1", 200, nrt=kubelet_allocs((UID, "0-3")))
    assert usages(cluster)["PCPU"] == 16
    assert cluster.get(f"/allocations/{UID}").json["allocations"] == {}
    assert cluster.delete(f"{PODS}/default/web").status_code == 204
    assert held(cluster, UID) == {"n1/core-0-0": {"PCPU": 2}, "n1/core-0-1": {"PCPU": 2}}


def test_another_ratio_changes_what_bound_cpus_cost(cluster):
    node(cluster, "n1", 200, annotations={RATIO: {"cpu": 2.0}}, cpu="32")
    pod = put(cluster, "web", pod_manifest(cpu="8"))
    numa = "n1/numa-0"
    assert held(cluster, pod["consumer_uuid"])[numa]["CUSTOM_CPU_MILLI"] == 16000
    node(cluster, "n1", 200, annotations={RATIO: {"cpu": 1.5}}, cpu="32")
    assert held(cluster, pod["consumer_uuid"])[numa]["CUSTOM_CPU_MILLI"] == 12000
    assert cluster.delete(f"{PODS}/default/web").status_code == 204
    assert usages(cluster) == {}


def test_reserved_cpus_of_amplified_hosts_are_taken_off_before_multiplying(cluster):
    node(
        cluster,
        "n2",
        annotations={RATIO: {"cpu": 1.5}},
        cpu="24",
        nrt={KUBELET: {"policy": "none", "reservedCPUs": "0-1"}},
    )
    numa = cluster.get(f"{CLUSTER}/nodes/n2").json["tree"]["children"][0]
    assert numa["resources"]["CUSTOM_CPU_MILLI"]["capacity"] == 9000
    aligned = {"numaTopologyPolicy": "SingleNUMANode"}
    pod = pod_manifest(
        cpu="9", qos="LS", priority=None, numa=aligned, nodeSelector={"kubernetes.io/hostname": "n2"}
    )
    assert "numaNodeResources" in put(cluster, "fits", pod)["annotations"][STATUS]


def owners(api: Client) -> dict[str, list[int]]:
    """The CPUs of each owner."""
    found: dict[str, list[int]] = {}
    for cpu in api.get(f"{CLUSTER}/nodes/n1").json["cpus"]:
        found.setdefault(cpu["pod"] or cpu["owner"], []).append(cpu["cpu"])
    return found


@pytest.mark.parametrize("qos", ["LS", "BE", None])
def test_a_pod_that_gets_no_cpus_of_its_own_takes_none_by_its_word(cluster, qos):
    greedy = pod_manifest(
        cpu=None if qos == "BE" else "1", qos=qos, priority=None, node="n1", status={"cpuset": "0-15"}
    )
    pod = put(cluster, "greedy", greedy)
    assert pod["cpuset"] == ""
    assert any("claims CPUs 0-15" in text and "no pod is charged" in text for text in pod["warnings"])
    assert "PCPU" not in usages(cluster)
    assert put(cluster, "web", pod_manifest(cpu="14"))["cpuset"] == "0-13"


def test_a_pod_takes_no_more_cpus_by_its_word_than_it_requests(cluster):
    put(cluster, "first", pod_manifest(cpu="2", node="n1", uid=OTHER_UID, status={"cpuset": "0-1"}))
    greedy = pod_manifest(cpu="3", node="n1", uid=UID, status={"cpuset": "0-2,4-7,40"})
    pod = put(cluster, "greedy", greedy)
    # None of another pod, whole cores before half ones, lowest numbers first; 4-5 is a whole core, 2 is not.
    assert pod["cpuset"] == "4-6"
    assert any("claims CPUs 0-2,7,40, but the pod requests 3 CPUs" in text for text in pod["warnings"])
    assert usages(cluster)["PCPU"] == 5
    assert put(cluster, "greedy", greedy, 200)["cpuset"] == "4-6"
    assert cluster.delete(f"{PODS}/default/first").status_code == 204
    # What it has it keeps, also when CPUs of lower numbers become free.
    assert put(cluster, "greedy", greedy, 200)["cpuset"] == "4-6"
    assert put(cluster, "web", pod_manifest(cpu="12"))["cpuset"] == "0-3,8-15"


def test_amounts_of_numa_nodes_are_no_more_than_the_pod_requests(cluster):
    status = {
        "numaNodeResources": [
            {"node": 0, "resources": {"cpu": "1", "memory": "512Mi"}},
            {"node": 1, "resources": {"cpu": "8", "memory": "16Gi"}},
        ]
    }
    pod = put(cluster, "ls", pod_manifest(cpu="2", qos="LS", priority=None, node="n1", status=status))
    assert held(cluster, pod["consumer_uuid"])["n1/numa-0"] == {"CUSTOM_CPU_MILLI": 1000, "MEMORY_MB": 512}
    assert held(cluster, pod["consumer_uuid"])["n1/numa-1"] == {"CUSTOM_CPU_MILLI": 1000, "MEMORY_MB": 512}
    assert len([text for text in pod["warnings"] if "of NUMA nodes" in text]) == 2


def test_a_status_that_cannot_be_read_keeps_nobody_off_if_it_could_not_give_cpus(cluster):
    odd = put(cluster, "odd", pod_manifest(qos="LS", priority=None, node="n1", status="{"))
    assert odd["unreadable"] == []
    assert odd["warnings"]
    assert put(cluster, "web", pod_manifest())["cpuset"] == "0-3"


def test_a_node_that_binds_everybody_believes_everybody_as_far_as_they_request(cluster):
    assert cluster.put("/ext/v1/clusters/edge", {"profile": "koord-scheduler"}).status_code == 200
    node(cluster, "n1", 200, labels={BIND: "FullPCPUsOnly"})
    bound = pod_manifest(cpu="2", qos="LS", priority=None, node="n1", status={"cpuset": "2-5"})
    assert put(cluster, "bound", bound)["cpuset"] == "2-3"


def resized(cpu: str, in_effect: str, *, infeasible: bool = False, **given) -> dict:
    """A pod on n1 whose container requests so much, and has so much in effect and admitted still."""
    manifest = pod_manifest(cpu, node="n1", uid=UID, phase="Running", **given)
    (container,) = manifest["spec"]["containers"]
    before = {**container["resources"]["requests"], "cpu": in_effect}
    told = {"name": container["name"], "allocatedResources": before, "resources": {"requests": before}}
    manifest["status"]["containerStatuses"] = [told]
    if infeasible:
        manifest["status"]["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        ]
    return manifest


def test_a_pod_that_shrinks_in_place_keeps_the_cpus_its_annotation_names(cluster):
    placed = put(cluster, "web", pod_manifest("4", uid=UID))
    written = placed["annotations"][STATUS]
    put(cluster, "web", pod_manifest("4", node="n1", uid=UID, status=written, phase="Running"), 200)
    shrunk = pod_manifest("2", node="n1", uid=UID, status=written, phase="Running")
    answer = put(cluster, "web", shrunk, 200)
    assert answer["cpuset"] == placed["cpuset"] == "0-3"
    assert "the pod requests 2 CPUs and has 4 of its own" in " ".join(answer["warnings"])
    assert put(cluster, "next", pod_manifest("12"))["cpuset"] == "4-15"
    cut = pod_manifest("2", node="n1", uid=UID, status={"cpuset": "0-1"}, phase="Running")
    assert put(cluster, "web", cut, 200)["cpuset"] == "0-1"
    assert put(cluster, "last", pod_manifest("2"))["cpuset"] == "2-3"


def test_a_pod_cannot_claim_what_it_never_had_by_shrinking(cluster):
    put(cluster, "web", pod_manifest("4", node="n1", uid=UID, status={"cpuset": "0-3"}))
    answer = put(cluster, "web", pod_manifest("2", node="n1", uid=UID, status={"cpuset": "0-7"}), 200)
    assert answer["cpuset"] == "0-3"
    answer = put(cluster, "web", pod_manifest("2", node="n1", uid=UID, status={"cpuset": "8-15"}), 200)
    assert answer["cpuset"] == "8-9"


def test_a_pod_that_grows_in_place_gets_no_more_cpus_of_its_own_and_is_told(cluster):
    put(cluster, "web", pod_manifest("4", node="n1", uid=UID, status={"cpuset": "0-3"}))
    answer = put(cluster, "web", pod_manifest("6", node="n1", uid=UID, status={"cpuset": "0-3"}), 200)
    assert answer["cpuset"] == "0-3"
    assert "the pod requests 6 CPUs and has 4 of its own" in " ".join(answer["warnings"])


@pytest.mark.parametrize(
    ("requested", "in_effect", "infeasible", "counted"),
    [("1", "4", False, 4000), ("4", "1", False, 4000), ("16", "4", True, 4000), ("4", "4", False, 4000)],
)
def test_during_a_resize_the_larger_amount_counts(cluster, requested, in_effect, infeasible, counted):
    manifest = resized(requested, in_effect, infeasible=infeasible, qos="LS", priority=None)
    pod = put(cluster, "web", manifest)
    assert held(cluster, pod["consumer_uuid"])["n1"]["CUSTOM_NODE_CPU_MILLI"] == counted
    stored = put(cluster, "web", manifest, 200)
    assert stored == pod


def test_the_former_pod_of_a_name_is_no_other_owner(cluster):
    put(cluster, "web", pod_manifest("4", node="n1", uid=UID, status={"cpuset": "0-3"}))
    answer = put(cluster, "web", pod_manifest("4", node="n1", uid=OTHER_UID, status={"cpuset": "0-3"}), 200)
    assert not any("are held by" in warning for warning in answer["warnings"])
    other = put(cluster, "other", pod_manifest("4", node="n1", status={"cpuset": "0-3"}))
    assert any("are held by pod default/web" in warning for warning in other["warnings"])


@pytest.mark.parametrize("others", [False, True])
def test_containers_are_told_only_cpus_that_exist_and_are_their_own(cluster, others):
    if others:
        put(cluster, "first", pod_manifest(cpu="2", node="n1", status={"cpuset": "14-15"}))
    pod = put(cluster, "web", pod_manifest(cpu="4", node="n1", status={"cpuset": "14-17"}))
    own = "" if others else "14-15"
    assert (pod["cpuset"], pod["containers"][0]["cpuset"]) == ("14-15", own or None)
    assert pod["containers"][0]["lift_cfs_quota"] is bool(own)
    assert any("CPUs 16-17 are not in the cpu-topology" in warning for warning in pod["warnings"])
    shown = {each["name"]: each for each in cluster.get(f"{CLUSTER}/nodes/n1").json["pods"]}
    assert (shown["web"]["cpuset"], shown["web"]["container_cpus"]) == ("14-15", own or None)
    assert cluster.get(f"{PODS}/default/web").json["containers"][0]["cpuset"] == (own or None)


def test_containers_get_the_cpus_of_their_pod_when_the_pod_that_was_first_leaves(cluster):
    put(cluster, "first", pod_manifest(cpu="2", node="n1", status={"cpuset": "0-1"}))
    second = put(cluster, "second", pod_manifest(cpu="4", node="n1", status={"cpuset": "0-3"}))
    assert (second["cpuset"], second["containers"][0]["cpuset"]) == ("0-3", "2-3")
    assert cluster.delete(f"{PODS}/default/first").status_code == 204
    shown = cluster.get(f"{PODS}/default/second").json
    assert (shown["cpuset"], shown["containers"][0]["cpuset"]) == ("0-3", "0-3")
    owners = cluster.get(f"{CLUSTER}/nodes/n1").json["cpus"]
    assert [cpu["cpu"] for cpu in owners if cpu.get("pod") == "default/second"] == [0, 1, 2, 3]


def test_a_pod_that_was_first_keeps_its_cpus_when_it_is_reported_again(cluster):
    manifest = pod_manifest(cpu="2", node="n1", status={"cpuset": "0-1"}, uid=UID)
    first = put(cluster, "first", manifest)
    put(cluster, "second", pod_manifest(cpu="4", node="n1", status={"cpuset": "0-3"}, uid=OTHER_UID))
    manifest["status"] = {"phase": "Running"}
    again = put(cluster, "first", manifest, 200)
    assert again["containers"][0]["cpuset"] == first["containers"][0]["cpuset"] == "0-1"
    assert cluster.get(f"{PODS}/default/second").json["containers"][0]["cpuset"] == "2-3"


def test_cpus_that_kubelet_pins_unseen_are_not_told(cluster):
    node(cluster, "static", nrt={KUBELET: {"policy": "static"}, ALLOCS: []})
    guaranteed = pod_manifest(cpu="4", qos=None, priority=None, node="static", phase="Running")
    pod = put(cluster, "pinned", guaranteed)
    assert pod["containers"][0]["cpuset"] is None
    assert pod["remarks"] == [
        "kubelet pins the pod to CPUs that no pod-cpu-allocs entry names: its CPUs are not known"
    ]
    shared = pod_manifest(cpu="1500m", qos=None, priority=None, node="static", phase="Running")
    assert put(cluster, "shared", shared)["containers"][0]["cpuset"] == "0-15"
    (shown, _) = cluster.get(f"{CLUSTER}/nodes/static").json["pods"]
    assert (shown["name"], shown["container_cpus"]) == ("pinned", None)


def test_what_is_known_of_pinned_cpus_is_that_of_the_moment(cluster):
    def pinned_with(*entries: dict[str, str]) -> tuple[str | None, int]:
        node(cluster, "static", 200, nrt={KUBELET: {"policy": "static"}, ALLOCS: list(entries)})
        pod = cluster.get(f"{PODS}/default/pinned").json
        return pod["containers"][0]["cpuset"], len(pod["remarks"])

    node(cluster, "static", nrt={KUBELET: {"policy": "static"}, ALLOCS: []})
    guaranteed = pod_manifest(cpu="4", qos=None, priority=None, node="static", phase="Running", uid=UID)
    put(cluster, "pinned", guaranteed)
    entry = {"namespace": "default", "name": "pinned", "uid": UID, "cpuset": "0-3"}
    assert pinned_with({**entry, "managedByKubelet": True}) == ("0-3", 0)
    assert pinned_with() == (None, 1)


def test_containers_are_told_no_cpus_that_their_node_has_lost(cluster):
    put(cluster, "web", pod_manifest(cpu="4", node="n1", status={"cpuset": "12-15"}))
    node(cluster, "n1", 200, rows=ROWS[:14])
    pod = cluster.get(f"{PODS}/default/web").json
    assert (pod["cpuset"], pod["containers"][0]["cpuset"]) == ("12-15", "12-13")
    (shown,) = cluster.get(f"{CLUSTER}/nodes/n1").json["pods"]
    assert (shown["cpuset"], shown["container_cpus"]) == ("12-13", "12-13")


def test_a_running_pod_with_a_policy_that_binds_nothing_is_recorded_with_a_warning(cluster):
    spec = {"preferredCPUBindPolicy": "fullpcpus"}
    pod = put(cluster, "web", pod_manifest(cpu="4", qos="LSE", node="n1", spec=spec))
    assert any("must be one of Default, FullPCPUs, SpreadByPCPUs" in text for text in pod["warnings"])


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize("member", ["preferredCPUBindPolicy", "requiredCPUBindPolicy"])
@pytest.mark.parametrize("policy", ["ConstrainedBurst", "fullpcpus"])
def test_a_class_with_cpus_of_its_own_needs_a_policy_that_gives_some(cluster, qos, member, policy):
    answer = cluster.put(f"{PODS}/default/web", pod_manifest(cpu="4", qos=qos, spec={member: policy}))
    assert answer.status_code == 400
    assert f'Invalid value: "{policy}": the CPU bind policy of {qos} Pod' in detail(answer)
