"""One case for each feature of Kubernetes and Koordinator that a pod can ask for: what must come of it.

In most cases a pod may not go to the only node that it selects, so a rule that is decided refuses it there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.common.manifest import CHOOSE_GATE, LOOP_NODE
from tests.kubernetes import NUMA_POLICY, STATUS, node_manifests, pod_manifest
from tests.pod_groups import CUSTOM, NATIVE, in_group, pod_group
from tests.reservations import reservation

_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_GANG = "gang.scheduling.koordinator.sh"


class Way(StrEnum):
    """A way by which a pod gets its node."""

    EXTENDER = "extender"
    LOOP = "loop"
    GATE = "gate"


class Outcome(StrEnum):
    """What must come of the pod if its feature is decided."""

    REFUSED = "refused"
    """No place, for the reason of the row."""
    PINNED = "pinned"
    """A place with CPUs of its own."""
    PREEMPTS = "preempts"
    """The place of another pod."""
    UNTOUCHED = "untouched"
    """Nothing: it is not looked at."""


@dataclass
class Case:
    """A node, and a pod that selects it by one of the ways; `others` are there before the pod."""

    name: str
    of_node: str
    way: Way
    node: dict[str, Any]
    topology: dict[str, Any]
    pod: dict[str, Any]
    others: list[dict[str, Any]] = field(default_factory=list)

    def machine(self, **given: Any) -> None:
        """Make the node anew, as `node_manifests` has it."""
        given["labels"] = {LOOP_NODE: "true", **given.get("labels", {})}
        made = node_manifests(self.of_node, **given)
        self.node, self.topology = made["node"], made["nodeResourceTopology"]

    def ask(self, *arguments: Any, **given: Any) -> None:
        """Make the pod anew, as `pod_manifest` has it."""
        self.pod = _pod(self.name, *arguments, **given)
        spec = self.pod["spec"]
        spec["nodeSelector"] = {_HOSTNAME: self.of_node, **given.get("nodeSelector", {})}
        spec["schedulerName"] = "placement" if self.way is Way.LOOP else "default-scheduler"
        if self.way is Way.GATE:
            spec["schedulingGates"] = [{"name": CHOOSE_GATE}, *given.get("schedulingGates", [])]

    def neighbour(self, *arguments: Any, **given: Any) -> dict[str, Any]:
        """A pod that runs on the node."""
        pod = _pod(f"{self.of_node}-neighbour", *arguments, node=self.of_node, phase="Running", **given)
        self.others.append(pod)
        return pod


def _pod(name: str, *arguments: Any, **given: Any) -> dict[str, Any]:
    pod = pod_manifest(*arguments, **{"phase": "Pending", **given})
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    pod["metadata"] |= {"name": name, "namespace": "default", "uid": uid}
    return pod


@dataclass(frozen=True)
class Row:
    """A feature: how its case is made, and what must come of it.

    `reason` is a part of the words by which a pod is refused. `by_kube_scheduler`: kube-scheduler decides it.
    """

    feature: str
    make: Callable[[Case], None]
    reason: str = ""
    by_kube_scheduler: bool = False
    outcome: Outcome = Outcome.REFUSED

    def case(self, number: int, way: Way) -> Case:
        """The case of the row for that way."""
        name, node = f"row-{number}-{way}", f"row-{number}"
        # The ways share a node, unless one of them empties it.
        made = Case(name, name if self.outcome is Outcome.PREEMPTS else node, way, {}, {}, {})
        made.machine()
        made.ask()
        self.make(made)
        return made


def _numa_policy(case: Case) -> None:
    case.machine(labels={NUMA_POLICY: "SingleNUMANode"})
    case.ask("12")


def _batch(case: Case) -> None:
    case.machine(**{"kubernetes.io__batch-cpu": "8000"})
    case.ask(None, None, qos="BE", priority=5500, requests={"kubernetes.io/batch-cpu": "9000"})


def _gang(case: Case) -> None:
    case.pod["metadata"]["annotations"] |= {f"{_GANG}/name": case.name, f"{_GANG}/min-available": "2"}


def _in_group(api_version: str) -> Callable[[Case], None]:
    def make(case: Case) -> None:
        case.others.append(pod_group(api_version, 2, case.name))
        case.pod = in_group(case.pod, api_version, case.name)

    return make


def _workload(case: Case) -> None:
    case.ask(workloadRef={"name": "training", "podGroup": "workers"})


def _whole_gpus(case: Case) -> None:
    zones = {numa: {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"} for numa in range(2)}
    case.machine(labels={NUMA_POLICY: "SingleNUMANode"}, zones=zones, **{"nvidia.com__gpu": "2"})
    case.ask(requests={"nvidia.com/gpu": "2"})


def _gpu_share(case: Case) -> None:
    case.machine(**{"koordinator.sh__gpu-core": "200"})
    case.ask(requests={"koordinator.sh/gpu-core": "50"})


def _device_claim(case: Case) -> None:
    case.ask(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])


def _quota(case: Case) -> None:
    case.ask(labels={"quota.scheduling.koordinator.sh/name": "team-a"})


def _network(case: Case) -> None:
    case.pod["metadata"]["annotations"]["scheduling.koordinator.sh/network-topology-spec"] = "{}"


def _reserved(case: Case) -> None:
    kept = reservation(f"{case.of_node}-kept", "16")
    kept["metadata"]["uid"] = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{case.of_node}-kept"))
    kept["spec"]["template"]["spec"]["nodeName"] = case.of_node
    case.others.append(kept)


def _preemption(case: Case) -> None:
    case.neighbour("16", status={"cpuset": "0-15"}, priority=0)


def _claim(case: Case, **volume_spec: Any) -> None:
    """A claim that is bound to a volume."""
    name = f"{case.name}-data"
    metadata = {"name": name, "namespace": "default"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume_spec}
    case.others += [{**claim, "spec": {"volumeName": name}, "status": {"phase": "Bound"}}, volume]
    case.ask(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])


def _volume_elsewhere(case: Case) -> None:
    expression = {"key": _HOSTNAME, "operator": "In", "values": ["elsewhere"]}
    _claim(case, nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})


def _volume_of_driver(case: Case) -> None:
    _claim(case, csi={"driver": "disks.example.org", "volumeHandle": "1"})


def _unbound_claim(case: Case) -> None:
    metadata = {"name": "data", "namespace": "default"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    case.others.append({**claim, "spec": {}, "status": {"phase": "Pending"}})
    case.ask(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def _ephemeral(case: Case) -> None:
    case.ask(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])


def _host_port(case: Case) -> None:
    for pod in (case.neighbour("1", qos="LS"), case.pod):
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]


def _taint(case: Case) -> None:
    case.machine(spec={"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]})


def _cordon(case: Case) -> None:
    case.machine(spec={"unschedulable": True})


def _affinity(case: Case) -> None:
    expression = {"key": "disk", "operator": "In", "values": ["fast"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    case.ask(affinity={"nodeAffinity": {_REQUIRED: term}})


def _preferred(case: Case) -> None:
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
    case.ask(affinity={"nodeAffinity": {_PREFERRED: [{"weight": 5, "preference": preference}]}})


def _apart(case: Case) -> None:
    case.neighbour("1", qos="LS", labels={"app": case.of_node})
    term = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": {"app": case.of_node}}}
    case.ask(affinity={"podAntiAffinity": {_REQUIRED: [term]}})


def _spread(case: Case) -> None:
    case.neighbour("1", qos="LS", labels={"app": case.of_node})
    constraint = {
        "maxSkew": 1,
        "topologyKey": _HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": case.of_node}},
        "nodeAffinityPolicy": "Ignore",
    }
    case.ask(labels={"app": case.of_node}, topologySpreadConstraints=[constraint])


def _namespaces(case: Case) -> None:
    term = {
        "topologyKey": _HOSTNAME,
        "labelSelector": {"matchLabels": {"app": case.name}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
    }
    case.ask(affinity={"podAntiAffinity": {_REQUIRED: [term]}})


def _other_gate(case: Case) -> None:
    case.ask(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])


def _resized(case: Case) -> None:
    """The neighbour asks for less than it still has."""
    pod = case.neighbour("4", qos="LS")
    resources = {"requests": {"cpu": "14", "memory": "1Gi"}}
    pod["status"]["containerStatuses"] = [{"name": "main", "resources": resources}]
    case.ask("4", qos="LS")


def cpus_of(pod: dict[str, Any]) -> str:
    """The CPUs of its own that a pod was given."""
    status = pod["metadata"].get("annotations", {}).get(STATUS, "{}")
    return str(json.loads(status).get("cpuset", ""))


ROWS = (
    Row("CPUs of a pod's own, as annotations", lambda _: None, outcome=Outcome.PINNED),
    Row("NUMA policies of nodes", _numa_policy, "NUMA"),
    Row("`batch-cpu`, `mid-cpu`", _batch, "Insufficient kubernetes.io/batch-cpu"),
    Row("CPUs of a resize that is under way", _resized, "Insufficient cpu"),
    Row("whole GPUs, aligned", _whole_gpus, "NUMA"),
    Row("shares of a GPU (DeviceShare)", _gpu_share),
    Row("ResourceClaims (DRA)", _device_claim, by_kube_scheduler=True),
    Row("Reservations of Koordinator", _reserved, "Insufficient cpu"),
    Row("gangs by annotations of Koordinator", _gang, "its gang"),
    *(Row(f"PodGroup of `{each.partition('/')[0]}`", _in_group(each), "its gang") for each in CUSTOM),
    Row("PodGroup of Kubernetes 1.36", _in_group(NATIVE), "its gang", by_kube_scheduler=True),
    Row("`workloadRef` of Kubernetes 1.35", _workload, by_kube_scheduler=True),
    Row("topology of racks (`network-topology-spec`)", _network),
    Row("ElasticQuota", _quota),
    Row("scheduling gates of others (kueue)", _other_gate, by_kube_scheduler=True, outcome=Outcome.UNTOUCHED),
    Row("preemption for CPUs of a pod's own", _preemption, "Insufficient cpu", outcome=Outcome.PREEMPTS),
    Row("taints", _taint, "untolerated taint", by_kube_scheduler=True),
    Row("cordons", _cordon, "unschedulable", by_kube_scheduler=True),
    Row("node selectors, required node affinity", _affinity, "affinity/selector", by_kube_scheduler=True),
    Row("preferred node affinity", _preferred, by_kube_scheduler=True),
    Row("affinity and anti-affinity of pods", _apart, "anti-affinity rules"),
    Row("labels of namespaces in these", _namespaces, by_kube_scheduler=True),
    Row("topology spread", _spread, "topology spread"),
    Row("host ports", _host_port, "free ports"),
    Row("node affinity of bound volumes", _volume_elsewhere, "affinity/selector", by_kube_scheduler=True),
    Row("volume claims that are not bound", _unbound_claim, by_kube_scheduler=True),
    Row("ephemeral volumes", _ephemeral, by_kube_scheduler=True),
    Row("limits of CSI drivers", _volume_of_driver, by_kube_scheduler=True),
)
