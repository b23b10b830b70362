"""Whatever is done to pods and nodes, in whatever order: what is stored follows from the pods."""

from __future__ import annotations

import json
import random

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from placement.engine.numa.cpus import format_cpu_list
from placement.pods.store.cache import ClusterCache
from placement.providers.statements import clusters
from tests.kubernetes import ALLOCS, BIND, KUBELET, NUMA_POLICY, RATIO, node_manifests, pod_manifest
from tests.machines import ServiceMachine, of_many_steps
from tests.pod_invariants import check, check_image
from tests.reservations import ALLOCATED, IGNORED, WEB, reservation

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods/default"
NODES = ("n1", "n2")
NAMES = ("a", "b", "c", "d", "e")
UIDS = tuple(f"6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d{number:02}" for number in range(6))
FOREIGN = "00000000-0000-4000-8000-000000000001"

names, nodes, uids = st.sampled_from(NAMES), st.sampled_from(NODES), st.sampled_from(UIDS)
cpu_sets = st.builds(
    lambda first, count, step: format_cpu_list(range(first, min(18, first + count * step), step)),
    st.integers(0, 15),
    st.integers(1, 6),
    st.integers(1, 2),
)
specs = st.sampled_from(
    [
        None,
        {"requiredCPUBindPolicy": "FullPCPUs"},
        {"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
        {"preferredCPUExclusivePolicy": "NUMANodeLevel"},
    ]
)
alignments = st.sampled_from(
    [None, {"numaTopologyPolicy": "SingleNUMANode"}, {"numaTopologyPolicy": "Restricted"}]
)
labels_of_pods = st.sampled_from([{}, WEB, {IGNORED: "true"}])
# Without `nodeLabels`: nodes have traits of them from their next import on.
settings_of_clusters = st.fixed_dictionaries(
    {"profile": st.sampled_from(["design", "koord-scheduler"])},
    optional={
        "guaranteedQoS": st.sampled_from(["LSR", "LS"]),
        "defaultCPUBindPolicy": st.sampled_from(["", "FullPCPUs", "SpreadByPCPUs"]),
        "defaultCPUExclusivePolicy": st.sampled_from(["None", "PCPULevel", "NUMANodeLevel"]),
        "defaultNUMATopologyPolicy": st.sampled_from(["None", "BestEffort", "Restricted", "SingleNUMANode"]),
        "numaAllocateStrategy": st.sampled_from(["MostAllocated", "LeastAllocated", "DistributeEvenly"]),
        "subPriorityImmutable": st.booleans(),
    },
)
kinds = st.sampled_from([("LSE", 9500), ("LSR", 9500), ("LS", None), (None, None)])


class Storm(ServiceMachine):
    """One cluster of two nodes, hit by everything that the API offers."""

    def __init__(self) -> None:
        super().__init__()
        self.exact = True
        assert self.api.put(CLUSTER).status_code == 201
        for name in NODES:
            self.import_(name, {})

    def import_(self, name: str, given: dict) -> None:
        answer = self.api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
        assert answer.status_code in (200, 201, 409), answer.text

    def send(self, name: str, manifest: dict) -> None:
        answer = self.api.put(f"{PODS}/{name}", manifest)
        assert answer.status_code in (200, 201, 400, 409), answer.text

    @rule(name=names, cpu=st.integers(1, 9), kind=kinds, spec=specs, numa=alignments, labels=labels_of_pods)
    def place(self, name, cpu, kind, spec, numa, labels):
        qos, priority = kind
        manifest = pod_manifest(
            cpu=str(cpu), memory="3000M", qos=qos, priority=priority, spec=spec, numa=numa, labels=labels
        )
        self.send(name, manifest)

    @rule(
        name=names,
        cpu=st.integers(1, 9),
        kind=kinds,
        numa=alignments,
        once=st.booleans(),
        policy=st.sampled_from(["", "Aligned", "Restricted"]),
    )
    def keep(self, name, cpu, kind, numa, once, policy):
        qos, priority = kind
        template = pod_manifest(cpu=str(cpu), memory="3000M", qos=qos, priority=priority, numa=numa)
        body = reservation(name, template=template, allocateOnce=once, allocatePolicy=policy)
        answer = self.api.put(f"{CLUSTER}/reservations/{name}", body)
        assert answer.status_code in (200, 201, 400, 409), answer.text

    @rule(name=names)
    def unkeep(self, name):
        assert self.api.delete(f"{CLUSTER}/reservations/{name}").status_code in (204, 404)

    @rule(
        name=names,
        uid=uids,
        node=nodes,
        cpus=cpu_sets,
        cpu=st.integers(1, 9),
        kept=st.one_of(st.none(), names),
    )
    def report(self, name, uid, node, cpus, cpu, kept):
        manifest = pod_manifest(cpu=str(cpu), uid=uid, node=node, status={"cpuset": cpus}, labels=WEB)
        if kept is not None:
            found = self.api.get(f"{CLUSTER}/reservations/{kept}").json
            manifest["metadata"]["annotations"][ALLOCATED] = json.dumps({"uid": found.get("uid")})
        self.send(name, manifest)

    @rule(name=names, node=nodes, numa=st.integers(0, 1), milli=st.integers(1, 9000))
    def report_aligned(self, name, node, numa, milli):
        status = {"numaNodeResources": [{"node": numa, "resources": {"cpu": f"{milli}m", "memory": "1Gi"}}]}
        self.send(name, pod_manifest(cpu=f"{milli}m", qos="LS", priority=None, node=node, status=status))

    @rule(name=names, phase=st.sampled_from(["Succeeded", "Failed"]))
    def end(self, name, phase):
        self.send(name, pod_manifest(node="n1", phase=phase))

    @rule(name=names)
    def delete(self, name):
        assert self.api.delete(f"{PODS}/{name}").status_code in (204, 404)

    @rule(node=nodes, ratio=st.sampled_from([1.0, 1.33, 1.5, 2.0]))
    def amplify(self, node, ratio):
        self.import_(node, {"annotations": {RATIO: {"cpu": ratio}}, "cpu": str(int(16 * ratio))})

    @rule(given=settings_of_clusters)
    def change_settings(self, given):
        """What was given to pods that are only reported may have gone elsewhere meanwhile."""
        answer = self.api.put(CLUSTER, given)
        assert answer.status_code in (200, 409), answer.text

    @rule(node=nodes, uid=uids, cpus=cpu_sets, other=uids, managed=st.booleans())
    def pin(self, node, uid, cpus, other, managed):
        allocs = [
            {"namespace": "kube", "name": "k", "uid": own, "cpuset": cpuset, "managedByKubelet": managed}
            for own, cpuset in ((uid, cpus), (other, "0-1"))
        ]
        self.import_(node, {"nrt": {ALLOCS: allocs, KUBELET: {"policy": "static"}}})

    @rule(node=nodes, cpus=cpu_sets)
    def reserve(self, node, cpus):
        self.import_(node, {"nrt": {"node.koordinator.sh/reservation": {"reservedCPUs": cpus}}})

    @rule(node=nodes, label=st.sampled_from([{BIND: "FullPCPUsOnly"}, {NUMA_POLICY: "BestEffort"}, {}]))
    def label(self, node, label):
        self.import_(node, {"labels": label})

    @rule(node=nodes, count=st.integers(8, 16))
    def shrink(self, node, count):
        rows = tuple((cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(count))
        self.import_(node, {"rows": rows})

    @rule(node=nodes, seed=st.integers(0, 9), amount=st.integers(1, 2))
    def claim_plainly(self, node, seed, amount):
        tree = self.api.get(f"{CLUSTER}/nodes/{node}").json["tree"]
        numa = random.Random(seed).choice(tree["children"])
        wanted = {numa["uuid"]: {"MEMORY_MB": 5000}}
        if numa["children"]:
            wanted[random.Random(seed).choice(numa["children"])["uuid"]] = {"PCPU": amount}
        self.release_plainly()
        assert self.api.claim(wanted, FOREIGN).status_code in (204, 409)

    @rule()
    def release_plainly(self):
        if self.api.delete(f"/allocations/{FOREIGN}").status_code == 204:
            self.exact = False

    @rule()
    def send_nodes_again(self):
        """Sending a node again changes nothing, except that pods get what others gave back meanwhile.

        What others held of providers that are gone goes then, too.
        """
        for node in NODES:
            with self.database.read() as connection:
                cluster = clusters.find_cluster(connection, "edge")
                stored = clusters.find_node(connection, cluster.id, node)
            before = self.api.get(f"{CLUSTER}/nodes/{node}").json
            body = {"node": stored.manifest, "nodeResourceTopology": stored.topology_manifest}
            answer = self.api.put(f"{CLUSTER}/nodes/{node}", body)
            assert answer.status_code == 200, answer.text
            assert answer.json["created"] == []
            if self.exact:
                assert answer.json["changed"] == answer.json["deleted"] == []
                after = self.api.get(f"{CLUSTER}/nodes/{node}").json
                # Settings that changed since have a manifest read again, at another time.
                assert {**after, "imported_at": None} == {**before, "imported_at": None}
        self.exact = True

    @invariant()
    def everything_follows_from_the_pods(self):
        stored = check(self.database, "edge", exact=self.exact, may_exceed=True)
        check_image(stored, self.registry[ClusterCache], "edge")

    def release_everything(self) -> None:
        self.api.delete(f"/allocations/{FOREIGN}")
        for name in NAMES:
            self.delete(name)
            self.unkeep(name)
        for name in NODES:
            self.import_(name, {})

    def delete_everything(self) -> None:
        for name in NODES:
            assert self.api.delete(f"{CLUSTER}/nodes/{name}").status_code == 204
        assert self.api.delete(CLUSTER).status_code == 204


class StormOnPostgresql(Storm):
    """The same on PostgreSQL."""

    backend = "postgresql"


TestStorm = Storm.TestCase
TestStormOnPostgresql = StormOnPostgresql.TestCase
TestStorm.settings = TestStormOnPostgresql.settings = of_many_steps(6)
