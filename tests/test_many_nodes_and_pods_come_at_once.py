"""Many nodes and many pods in one call: each has its outcome, and is what it would be had it come alone."""

from __future__ import annotations

import copy
import datetime
import random
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement.engine.numa.cpus import parse_cpu_list
from placement.http.registry import registry_of
from placement.pods.koordinator.node import import_like, import_node
from placement.pods.services import node_importing, nodes
from placement.pods.services.scheduler import PodScheduler
from placement.pods.store.cache import ClusterCache
from placement.pods.store.loader import NodeLoader
from placement.pods.store.topologies import canonical_report
from placement.pods.store.writer import NodeChanged
from placement.storage.database import Database
from tests import pod_invariants
from tests.client import Client
from tests.kubernetes import ALLOCS, CLUSTER, NUMA_POLICY, node_manifests, pod_manifest
from tests.reservations import reservation

INSTANCE = "1a2b3c4d-0000-4000-8000-000000000001"
pytestmark = pytest.mark.one_database

OTHER = "/ext/v1/clusters/other"
Put = Callable[[Client, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def cluster(api: Client) -> Client:
    for path in (CLUSTER, OTHER):
        assert api.put(path).status_code == 201
    return api


def listed(*bodies: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": [part for body in bodies for part in body.values()]}


def all_nodes(api: Client, *bodies: dict[str, Any], path: str = CLUSTER) -> list[dict[str, Any]]:
    answer = api.post(f"{path}/nodes", listed(*bodies))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json["nodes"]
    return found


def statuses(outcomes: list[dict[str, Any]]) -> list[int]:
    return [each["status"] for each in outcomes]


def unlike(node: dict[str, Any]) -> Any:
    """What a node shows, without what differs from import to import."""
    if isinstance(node, dict):
        left = ("imported_at", "changed_at", "uuid", "cluster", "resource_provider", "consumer_uuid")
        return {key: unlike(part) for key, part in node.items() if key not in left}
    if isinstance(node, list):
        return [unlike(part) for part in node]
    return node.replace("other/", "edge/") if isinstance(node, str) else node


def bodies(count: int) -> list[dict[str, Any]]:
    """Nodes of several kinds, on some of which kubelet has given CPUs to pods."""
    kubelet = {ALLOCS: [{"uid": "static", "cpuset": "0-3", "managedByKubelet": True}]}
    return [
        node_manifests(
            f"n{number}",
            labels={NUMA_POLICY: "SingleNUMANode"} if number % 3 == 0 else {},
            nrt=kubelet if number % 4 == 1 else {},
            memory="32Gi" if number % 2 else "24Gi",
        )
        for number in range(count)
    ]


@pytest.mark.both_databases
def test_many_nodes_are_what_they_are_one_by_one(cluster: Client, database: Database):
    nodes = bodies(9)
    assert statuses(all_nodes(cluster, *nodes)) == [201] * 9
    for body in nodes:
        name = body["node"]["metadata"]["name"]
        other = copy.deepcopy(body)
        assert cluster.put(f"{OTHER}/nodes/{name}", other).status_code == 201
        shown = [cluster.get(f"{path}/nodes/{name}").json for path in (CLUSTER, OTHER)]
        assert unlike(shown[0]) == unlike(shown[1])
    pod_invariants.check(database, "edge")


@pytest.mark.both_databases
def test_known_nodes_are_not_touched_and_changed_ones_are_changed(cluster: Client, database: Database):
    nodes = bodies(4)
    first = all_nodes(cluster, *nodes)
    assert [len(each["created"]) for each in first] == [11] * 4
    before = [cluster.get(f"{CLUSTER}/nodes/n{number}").json for number in range(4)]
    changed = copy.deepcopy(nodes[2])
    changed["node"]["status"]["allocatable"]["memory"] = "16Gi"
    again = all_nodes(cluster, nodes[0], nodes[1], changed, node_manifests("n9"))
    assert statuses(again) == [200, 200, 200, 201]
    assert [each["changed"] for each in again] == [[], [], ["edge/n2"], []]
    for number in (0, 1, 3):
        assert cluster.get(f"{CLUSTER}/nodes/n{number}").json == before[number]
    assert cluster.get(f"{CLUSTER}/nodes/n2").json["resources"]["CUSTOM_NODE_MEMORY_MB"]["capacity"] == 16384
    pod_invariants.check(database, "edge")


def test_nodes_are_read_again_once_when_the_settings_of_the_cluster_have_changed(
    cluster: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node_importing, "_CLOCKS_DIFFER", datetime.timedelta(0))
    body = node_manifests("n1", labels={"rack": "r1"})
    all_nodes(cluster, body)
    assert cluster.put(CLUSTER, {"nodeLabels": ["rack"]}).status_code == 200
    (again,) = all_nodes(cluster, body)
    assert again["changed"] == ["edge/n1"]
    # Its manifests are not read any more.
    monkeypatch.delattr(nodes, "import_node")
    assert statuses(all_nodes(cluster, body)) == [200]


@pytest.mark.both_databases
def test_what_is_wrong_with_a_node_concerns_that_node(cluster: Client, database: Database):
    taken = cluster.provider("edge/taken")
    held = bodies(1)[0]
    all_nodes(cluster, held)
    pod = pod_manifest("8", "1Gi")
    assert cluster.put(f"{CLUSTER}/pods/default/web", pod).status_code == 201
    smaller = copy.deepcopy(held)
    detail = node_manifests("n0", rows=tuple((cpu, cpu // 2, 0, 0) for cpu in range(4)))
    smaller["nodeResourceTopology"] = detail["nodeResourceTopology"]
    wrong, twin = node_manifests("n2"), node_manifests("n3")
    wrong["node"]["status"]["allocatable"]["memory"] = "much"
    twin["node"]["metadata"]["uid"] = "uid-n5"
    new, other, fifth = (node_manifests(name) for name in ("n1", "taken", "n5"))
    outcomes = all_nodes(cluster, smaller, new, wrong, other, fifth, twin)
    assert statuses(outcomes) == [200, 201, 400, 409, 201, 400]
    said = [each["error"]["detail"] for each in outcomes if "error" in each]
    assert "CPUs 4-7 of pod default/web are not there" in outcomes[0]["warnings"]
    assert "node n2: Node.status.allocatable" in said[0]
    assert "edge/taken already exists" in said[1]
    assert "already belongs to node 'n5'" in said[2]
    names = [node["name"] for node in cluster.get(f"{CLUSTER}/nodes").json["nodes"]]
    assert names == ["n0", "n1", "n5"]
    assert cluster.get(f"/resource_providers/{taken}").json["generation"] == 0
    pod_invariants.check(database, "edge")


def test_a_node_that_came_back_as_another_machine_is_another(cluster: Client, database: Database):
    nodes = bodies(2)
    all_nodes(cluster, *nodes)
    for body in nodes:
        body["node"]["metadata"]["uid"] += "-again"
    assert cluster.put(f"{CLUSTER}/pods/default/web", pod_manifest(node="n1")).status_code == 201
    outcomes = all_nodes(cluster, *nodes)
    assert statuses(outcomes) == [201, 201]
    assert cluster.get(f"{CLUSTER}/pods/default/web").json["node"] == "n1"
    pod_invariants.check(database, "edge")


def test_bodies_without_nodes_are_refused(cluster: Client):
    topology = node_manifests("n1")["nodeResourceTopology"]
    for body in ({"kind": "List", "items": []}, {"kind": "List", "items": [topology]}, pod_manifest()):
        assert cluster.post(f"{CLUSTER}/nodes", body).status_code == 400
    assert cluster.post("/ext/v1/clusters/none/nodes", listed(node_manifests("n1"))).status_code == 404


def test_of_nodes_that_are_alike_one_tells_what_the_others_are():
    loader = NodeLoader()
    for body in [*bodies(12), node_manifests("n12", labels={"rack": "a b"}, annotations={"x": 1})]:
        node, topology = body["node"], body["nodeResourceTopology"]
        template = loader.template("design", node, canonical_report(topology))
        for labels in ((), ("rack",)):
            read = import_node("edge", node, topology, "design", labels)
            assert import_like("edge", node, topology, template.node_import, labels) in (read, None)
    assert import_like("edge", node, topology, template.node_import) is not None


# -- pods ---------------------------------------------------------------------------------------------


def named(name: str, *arguments: Any, **members: Any) -> dict[str, Any]:
    manifest = pod_manifest(*arguments, **members)
    manifest["metadata"].update(name=name, namespace="default", uid=f"uid-{name}")
    return manifest


def all_pods(api: Client, *pods: dict[str, Any], path: str = CLUSTER) -> list[dict[str, Any]]:
    answer = api.post(f"{path}/pods", {"kind": "List", "items": list(pods)})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json["pods"]
    return found


def pods_of_many_kinds(count: int) -> list[dict[str, Any]]:
    """Some look for a place, some run already."""
    chance = random.Random(3)
    found = []
    for number in range(0, count, 3):
        found += [
            named(f"p{number}", str(chance.choice((1, 2, 4))), "1Gi"),
            named(f"p{number + 1}", "500m", "1Gi", qos="LS"),
            named(f"p{number + 2}", "250m", "1Gi", qos="LS", node=f"n{(number + 2) % 4}"),
        ]
    return found[:count]


@pytest.mark.both_databases
def test_many_pods_get_what_they_get_one_by_one(cluster: Client, database: Database):
    nodes, pods = bodies(4), pods_of_many_kinds(70)
    for path in (CLUSTER, OTHER):
        all_nodes(cluster, *nodes, path=path)
    together = all_pods(cluster, *pods)
    assert {201, 409} == set(statuses(together))
    for pod, outcome in zip(pods, together, strict=True):
        name = pod["metadata"]["name"]
        alone = cluster.put(f"{OTHER}/pods/default/{name}", pod)
        assert alone.status_code == outcome["status"], (alone.text, outcome)
        if alone.status_code == 201:
            assert unlike(alone.json) == unlike(outcome["pod"])
            assert cluster.get(f"{CLUSTER}/pods/default/{name}").json["cpuset"] == outcome["pod"]["cpuset"]
    fresh = pod_invariants.check(database, "edge")
    cache = registry_of(cluster.http.application)[ClusterCache]
    pod_invariants.check_image(fresh, cache, "edge")


def test_new_namespaces_of_many_pods_are_registered_together(cluster: Client, database: Database):
    all_nodes(cluster, *bodies(4))
    registered = []

    def note(_connection, _cursor, statement, *_):
        registered.append("INTO users" in statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    pods = [named(f"p{number}", "250m", "1Gi", qos="LS") for number in range(5)]
    for number, pod in enumerate(pods):
        pod["metadata"]["namespace"] = f"team-{number}"
    outcomes = all_pods(cluster, *pods)
    sa.event.remove(database.engine, "before_cursor_execute", note)
    assert statuses(outcomes) == [201] * 5
    assert sum(registered) == 1


@pytest.mark.both_databases
def test_what_is_not_simply_a_new_pod_is_done_as_if_it_came_alone(cluster: Client, database: Database):
    all_nodes(cluster, *bodies(2))
    known, moved = named("known", "2"), named("moved", "1", node="n0")
    assert statuses(all_pods(cluster, known, moved)) == [201, 201]
    over, nowhere = named("over", "1", node="n1", phase="Succeeded"), named("nowhere", "1", node="n7")
    moved = named("moved", "1", node="n1")
    large, nameless, twin = named("large", "400"), pod_manifest(), named("twin", "1")
    wrong = named("wrong", "1", requests={"cpu": "much"})
    outcomes = all_pods(cluster, known, moved, over, nowhere, large, nameless, twin, twin, wrong)
    assert statuses(outcomes) == [200, 200, 201, 400, 409, 400, 201, 200, 400]
    assert outcomes[1]["pod"]["node"] == "n1"
    assert "no node 'n7'" in outcomes[3]["error"]["detail"]
    assert "pod default/large" in outcomes[4]["error"]["detail"]
    assert "Pod.metadata.name: is missing" in outcomes[5]["error"]["detail"]
    pod_invariants.check(database, "edge")


def test_pods_are_decided_again_when_a_node_changes_meanwhile(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    all_nodes(cluster, *bodies(1))
    real = PodScheduler._decide_gangs
    others = iter(["8"])

    def beaten(self: Any, *arguments: Any) -> Any:
        decided = real(self, *arguments)
        for cpus in others:
            assert cluster.put(f"{CLUSTER}/pods/default/faster", named("faster", cpus)).status_code == 201
        return decided

    monkeypatch.setattr(PodScheduler, "_decide_gangs", beaten)
    outcomes = all_pods(cluster, named("a", "6"), named("b", "6"))
    assert statuses(outcomes) == [201, 409]
    pod_invariants.check(database, "edge")


def test_pods_that_others_always_outrun_come_one_by_one(cluster: Client, monkeypatch: pytest.MonkeyPatch):
    all_nodes(cluster, *bodies(1))
    tries = []

    def beaten(*given: Any) -> Any:
        tries.append(given)
        raise NodeChanged("Others were faster.")

    monkeypatch.setattr(PodScheduler, "_together", beaten)
    assert statuses(all_pods(cluster, named("a", "6"), named("b", "6"))) == [201, 201]
    assert len(tries) == 3


@pytest.mark.both_databases
def test_pods_of_consumers_that_are_others_keep_no_other_pod_out(cluster: Client, database: Database):
    all_nodes(cluster, *bodies(2))
    host = cluster.provider("host", VCPU=4)
    taken = all_pods(cluster, named("a", "1"))[0]["pod"]["consumer_uuid"]
    assert cluster.delete(f"{CLUSTER}/pods/default/a").status_code == 204
    assert cluster.claim({host: {"VCPU": 1}}, taken).status_code == 204
    outcomes = all_pods(cluster, named("a", "1"), named("b", "1"))
    assert statuses(outcomes) == [409, 201]
    assert taken in outcomes[0]["error"]["detail"]
    pod_invariants.check(database, "edge")


RESERVED = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0-3,8-9"}'}


def one_node(cluster: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Put one node by itself; the outcome as that of many."""
    answer = cluster.put(f"{CLUSTER}/nodes/{body['node']['metadata']['name']}", body)
    return {"status": answer.status_code, **answer.json}


def among_others(cluster: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Put a node beside another one in one call; its outcome."""
    outcome, _ = all_nodes(cluster, body, node_manifests("beside"))
    return outcome


each_way = pytest.mark.parametrize("put", [one_node, among_others])


@each_way
def test_a_reported_node_that_offers_less_than_its_pods_hold_is_taken_as_it_is(
    cluster: Client, database: Database, put: Put
):
    """Nothing of it waits for the pods: not the cordon, nor the reserved CPUs that they do not hold."""
    all_nodes(cluster, *bodies(1))
    for name in ("web", "db"):
        assert cluster.put(f"{CLUSTER}/pods/default/{name}", pod_manifest("4", "1Gi")).status_code == 201
    smaller = node_manifests("n0", annotations=RESERVED, spec={"unschedulable": True})
    smaller["node"]["status"]["allocatable"]["memory"] = "1Gi"
    outcome = put(cluster, smaller)
    assert outcome["status"] == 200, outcome
    beyond = [
        "CPUs 0-3 of pod default/web are reserved on the node",
        "CPUs 8-9 of pod default/db are reserved on the node",
        "pods hold 2048 CUSTOM_NODE_MEMORY_MB of the host, which offers 1024",
    ]
    assert outcome["warnings"] == beyond
    pod_invariants.check(database, "edge")
    node = cluster.get(f"{CLUSTER}/nodes/n0").json
    assert set(beyond) <= set(node["remarks"])
    pods = {name: cluster.get(f"{CLUSTER}/pods/default/{name}").json["cpuset"] for name in ("web", "db")}
    assert pods == {"web": "0-3", "db": "8-11"}
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("1", "1Mi")).json
    assert "unschedulable" in str(preview["rejected"])
    cluster.delete(f"{CLUSTER}/nodes/beside")
    smaller["node"]["spec"] = {}
    smaller["node"]["status"]["allocatable"]["memory"] = "64Gi"
    assert [each["status"] for each in all_nodes(cluster, smaller)] == [200]
    # Ten CPUs are not reserved; eight are taken, then six.
    refused = cluster.put(f"{CLUSTER}/pods/default/next", pod_manifest("4", "1Gi"))
    assert refused.status_code == 409
    assert cluster.delete(f"{CLUSTER}/pods/default/web").status_code == 204
    taken = cluster.put(f"{CLUSTER}/pods/default/next", pod_manifest("6", "1Gi")).json["cpuset"]
    assert not parse_cpu_list(taken) & {*range(4), *range(8, 12)}
    pod_invariants.check(database, "edge")


@pytest.mark.parametrize("kept", [False, True])
def test_what_a_node_holds_that_offered_nothing_for_a_while_is_held_again(
    cluster: Client, database: Database, kept: bool
):
    """A reservation and a pod alike are there all the time, with nothing in between."""
    (body,) = bodies(1)
    all_nodes(cluster, body)
    pod = pod_manifest("4", "1Gi")
    path = f"{CLUSTER}/reservations/kept" if kept else f"{CLUSTER}/pods/default/web"
    assert cluster.put(path, reservation(template=pod) if kept else pod).status_code == 201
    before = cluster.get(path).json
    nothing = node_manifests("n0", rows=(), zones={}, memory="0", pods="0")
    assert among_others(cluster, nothing)["status"] == 200
    pod_invariants.check(database, "edge")
    assert not cluster.used_by(before["consumer_uuid"])
    assert one_node(cluster, body)["status"] == 200
    pod_invariants.check(database, "edge")
    assert cluster.get(path).json == before
    assert cluster.used_by(before["consumer_uuid"])


def test_pods_get_nothing_of_what_instances_hold_of_cores_and_numa_nodes_alone(cluster: Client):
    """A claim by query or flavor need not name the host, whose CPUs and memory it takes as well."""
    all_nodes(cluster, *bodies(1))
    tree = cluster.get(f"{CLUSTER}/nodes/n0").json["tree"]
    cores = {core["uuid"]: {"PCPU": 2} for numa in tree["children"] for core in numa["children"]}
    below = {**dict(list(cores.items())[1:]), tree["children"][1]["uuid"]: {"MEMORY_MB": 8192}}
    whole = {tree["uuid"]: {"CUSTOM_NODE_CPU_MILLI": 14000, "CUSTOM_NODE_MEMORY_MB": 8192}}
    host = cluster.get(f"/resource_providers/{tree['uuid']}/inventories").json["inventories"]
    free, other = host["CUSTOM_NODE_MEMORY_MB"]["total"] - 8192, INSTANCE.replace("1a2b", "5e6f")
    for held in (below, {**below, **whole}):
        assert cluster.claim(held, INSTANCE).status_code == 204
        for cpu, memory, reason in (("2100m", "1Mi", "cpu"), ("1", f"{free + 1}Mi", "memory")):
            preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu, memory, qos="LS")).json
            assert f"Insufficient {reason}" in str(preview["rejected"])
        fits = pod_manifest("2", f"{free}Mi", qos="LS")
        assert cluster.put(f"{CLUSTER}/pods/default/web", fits).status_code == 201
        if held is below:
            cluster.delete(f"{CLUSTER}/pods/default/web")
            # What another consumer names of the host alone is taken beside.
            assert cluster.claim({tree["uuid"]: {"CUSTOM_NODE_CPU_MILLI": 1000}}, other).status_code == 204
            preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("1100m", "1Mi", qos="LS")).json
            assert "Insufficient cpu" in str(preview["rejected"])
            for consumer in (INSTANCE, other):
                cluster.delete(f"/allocations/{consumer}")
    first = next(iter(cores))
    assert cluster.claim({first: {"PCPU": 2}}).status_code == 204
    beyond = "pods hold 2000 and consumers beside pods hold 16000 CUSTOM_NODE_CPU_MILLI of the host, which"
    assert beyond in str(cluster.get(f"{CLUSTER}/nodes/n0").json["remarks"])


@each_way
def test_a_reported_node_that_offers_less_than_instances_hold_is_taken_as_it_is(
    cluster: Client, database: Database, put: Put
):
    """What consumers beside pods hold stays theirs, with nothing of it left to give."""
    all_nodes(cluster, *bodies(1))
    tree = cluster.get(f"{CLUSTER}/nodes/n0").json["tree"]
    numa = next(each for each in tree["children"] if each["name"].endswith("numa-1"))
    core = next(each for each in numa["children"] if each["name"].endswith("core-1-7"))
    held = {core["uuid"]: {"PCPU": 2}, tree["uuid"]: {"CUSTOM_NODE_MEMORY_MB": 4096}}
    assert cluster.claim(held, INSTANCE).status_code == 204
    assert cluster.put(f"{CLUSTER}/pods/default/web", pod_manifest("2", "1Gi")).status_code == 201
    smaller = node_manifests(
        "n0", rows=tuple((cpu, cpu // 2, 0, 0) for cpu in range(4)), spec={"unschedulable": True}
    )
    smaller["node"]["status"]["allocatable"]["memory"] = "3Gi"
    outcome = put(cluster, smaller)
    assert outcome["status"] == 200, outcome
    assert "edge/n0/core-1-6" in outcome["deleted"]
    assert not {"edge/n0/core-1-7", "edge/n0/numa-1"} & set(outcome["deleted"])
    beyond = [
        "pods hold 1024 and consumers beside pods hold 4096 CUSTOM_NODE_MEMORY_MB of the host, "
        "which offers 3072",
        "consumers beside pods hold 2 PCPU of core-1-7, which offers 0",
    ]
    assert outcome["warnings"] == beyond
    assert set(beyond) <= set(cluster.get(f"{CLUSTER}/nodes/n0").json["remarks"])
    pod_invariants.check(database, "edge", may_exceed=True)
    assert len(pod_invariants.exceeded(database)) == 2
    kept = cluster.get(f"/resource_providers/{core['uuid']}/inventories").json["inventories"]["PCPU"]
    assert (kept["total"], kept["reserved"]) == (2, 2)
    assert cluster.get(f"/allocations/{INSTANCE}").json["allocations"].keys() == held.keys()
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("1", "1Mi")).json
    assert "unschedulable" in str(preview["rejected"])
    # Once they are free, the next import finds nothing in use.
    assert cluster.delete(f"/allocations/{INSTANCE}").status_code == 204
    smaller["node"]["spec"] = {}
    outcome = put(cluster, smaller)
    assert {"edge/n0/core-1-7", "edge/n0/numa-1"} <= set(outcome["deleted"])
    assert outcome["warnings"] == []
    pod_invariants.check(database, "edge")


def test_a_core_that_loses_a_thread_which_an_instance_holds_gives_no_more(
    cluster: Client, database: Database
):
    all_nodes(cluster, *bodies(1))
    tree = cluster.get(f"{CLUSTER}/nodes/n0").json["tree"]
    (core,) = [
        core for numa in tree["children"] for core in numa["children"] if core["name"].endswith("core-1-7")
    ]
    assert cluster.claim({core["uuid"]: {"PCPU": 2}}).status_code == 204
    rows = tuple((cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(15))
    outcome = one_node(cluster, node_manifests("n0", rows=rows))
    assert outcome["warnings"][-1] == "consumers beside pods hold 2 PCPU of core-1-7, which offers 1"
    kept = cluster.get(f"/resource_providers/{core['uuid']}/inventories").json["inventories"]["PCPU"]
    assert (kept["total"], kept["reserved"]) == (2, 1)
    pod_invariants.check(database, "edge", may_exceed=True)
    assert len(pod_invariants.exceeded(database)) == 1
