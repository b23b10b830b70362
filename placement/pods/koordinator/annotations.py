"""Labels and annotations of nodes and pods (koordinator.md, "Keys and schemas")."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

from placement.allocations.kubernetes_resources import base_amount
from placement.common.manifest import Field
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.numa.host import BindPolicy, NumaAmounts, NumaExclusivity, NumaPolicy
from placement.pods.manifests.pod import Pod, pod_requests, quantities
from placement.pods.state import model

CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
NUMA_TOPOLOGY_POLICY_ALIAS = "node.koordinator.sh/numa-topology-alignment-policy"

RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
LS_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
BE_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"

QOS_CLASS = "koordinator.sh/qosClass"
PRIORITY_CLASS = "koordinator.sh/priority-class"
SUB_PRIORITY = "koordinator.sh/priority"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
RESERVATION_ORDER = "scheduling.koordinator.sh/reservation-order"
RESERVATION_IGNORED = "scheduling.koordinator.sh/reservation-ignored"
EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"
EXCLUSIVITY_GROUP = "placement/exclusivity-group"
SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint"

DEFAULT = "Default"
CONSTRAINED_BURST = "ConstrainedBurst"
_REQUIRED = "requiredCPUBindPolicy"
_PREFERRED = "preferredCPUBindPolicy"
_EXCLUSIVE = "preferredCPUExclusivePolicy"
_NUMA_POLICY, _NUMA_EXCLUSIVE = "numaTopologyPolicy", "singleNUMANodeExclusive"
REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_MEMBERS = {
    RESOURCE_SPEC: (_REQUIRED, _PREFERRED, _EXCLUSIVE),
    NUMA_TOPOLOGY_SPEC: (_NUMA_POLICY, _NUMA_EXCLUSIVE),
    RESERVATION_AFFINITY: ("name", "reservationSelector", REQUIRED_TERMS),
}
_NETWORK_TOPOLOGY = "scheduling.koordinator.sh/network-topology-spec"
_ON_PODS = (*_MEMBERS, RESOURCE_STATUS, RESERVATION_ALLOCATED, EXTENDED_RESOURCE_SPEC, _NETWORK_TOPOLOGY)
_PREFIXES = ("scheduling.koordinator.sh/", "node.koordinator.sh/")
_CLOSE = 0.8


class PriorityClass(StrEnum):
    """The importance of a pod; `UNSET` if the pod does not say."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    UNSET = ""


_BANDS = {
    PriorityClass.PROD: range(9000, 10000),
    PriorityClass.MID: range(7000, 8000),
    PriorityClass.BATCH: range(5000, 6000),
    PriorityClass.FREE: range(3000, 4000),
}


def raw_priority(pod: Pod) -> PriorityClass:
    """Return the class of the label, even if it names none that exists, else of the band of `spec.priority`.

    Source: koordinator.md, "Priority class".
    """
    label = pod.label(PRIORITY_CLASS)
    if pod.manifest.label(PRIORITY_CLASS).value is not None:
        return PriorityClass(label) if label in set(PriorityClass) else PriorityClass.UNSET
    bands = (priority for priority, band in _BANDS.items() if pod.priority in band)
    return next(bands, PriorityClass.UNSET)


def raw_qos(pod: Pod) -> model.QosClass:
    """Return the class a pod's label names; UNSET if it names none that exists. Annotations do not count.

    Source: koordinator.md, "QoS class".
    """
    label = pod.label(QOS_CLASS)
    return model.QosClass(label) if label in set(model.QosClass) else model.QosClass.UNSET


def kubernetes_qos(pod: Pod) -> model.KubernetesQos:
    """Return the class its status reports, else the one that follows from cpu and memory of all containers.

    Source: koordinator.md, "QoS class".
    """
    if pod.reported_qos in set(model.KubernetesQos):
        return model.KubernetesQos(pod.reported_qos)
    containers, is_guaranteed, is_best_effort = pod.all_containers, True, True
    for resource in ("cpu", "memory"):
        asked = [item.requests.get(resource, 0) for item in containers]
        capped = [item.limits.get(resource, 0) for item in containers]
        is_guaranteed = is_guaranteed and all(capped) and sum(asked) == sum(capped)
        is_best_effort = is_best_effort and not any(asked) and not any(capped)
    if is_best_effort:
        return model.KubernetesQos.BEST_EFFORT
    return model.KubernetesQos.GUARANTEED if is_guaranteed else model.KubernetesQos.BURSTABLE


def qos_with_default(pod: Pod, guaranteed_qos: model.QosClass = model.QosClass.LSR) -> model.QosClass:
    """Return the class of the label, else what the Kubernetes class stands for, never UNSET.

    Source: koordinator.md, "QoS class".
    """
    named = raw_qos(pod)
    if named:
        return named
    burstable, best_effort = model.KubernetesQos.BURSTABLE, model.KubernetesQos.BEST_EFFORT
    return {burstable: model.QosClass.LS, best_effort: model.QosClass.BE}.get(
        kubernetes_qos(pod), guaranteed_qos
    )


def running_qos(pod: Pod, kubelet: model.KubeletPolicy) -> model.QosClass:
    """Return how a pod is treated on the host it runs on, where kubelet has that policy.

    Without a label a Guaranteed pod with whole CPUs counts as LSR where kubelet is static and pins them, and
    otherwise runs in the LS pool like a Burstable one. Source: koordinator.md, "QoS class".
    """
    cpu = pod_requests(pod).get("cpu", Fraction(0))
    pinned = kubelet.is_static and cpu > 0 and cpu.denominator == 1
    return qos_with_default(pod, guaranteed_qos=model.QosClass.LSR if pinned else model.QosClass.LS)


def is_bound_eligible(pod: Pod, guaranteed_qos: model.QosClass) -> bool:
    """Return whether a pod may get CPUs of its own wherever it runs: LSE and LSR pods of class prod may.

    Source: koordinator.md, "Bound pods".
    """
    return raw_qos(pod).owns_cpus and priority_with_default(pod, guaranteed_qos) is PriorityClass.PROD


def priority_with_default(pod: Pod, guaranteed_qos: model.QosClass = model.QosClass.LSR) -> PriorityClass:
    """Return the priority class of a pod, else of its QoS class, where Guaranteed means `guaranteed_qos`.

    Source: koordinator.md, "Priority class".
    """
    is_best_effort = qos_with_default(pod, guaranteed_qos).is_best_effort
    return raw_priority(pod) or (PriorityClass.BATCH if is_best_effort else PriorityClass.PROD)


_AnnotationChoice = TypeVar("_AnnotationChoice", bound=StrEnum)


def read_resource_spec(annotation: Field) -> model.ResourceSpec:
    """Return the spec of a resource-spec annotation, absent or not; what does not parse is reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return model.ResourceSpec(
        required_bind=parsed.member(_REQUIRED).text() or "",
        preferred_bind=parsed.member(_PREFERRED).text() or "",
        exclusive=parsed.member(_EXCLUSIVE).text() or "",
        document=dict(parsed.mapping()),
    )


def completed_spec(spec: model.ResourceSpec, bind: str, strict: bool) -> Mapping[str, Any]:
    """Return the annotation after a pod was bound under a policy, with the policies that were only implied.

    Nothing changes if no policy applied. Source: koordinator.md, "What is written".
    """
    completed = dict(spec.document)
    if bind and strict and spec.required_bind in ("", DEFAULT):
        completed[_REQUIRED] = bind
    if bind and spec.preferred_bind == DEFAULT:
        completed[_PREFERRED] = bind
    if bind and not completed.get(_REQUIRED) and not completed.get(_PREFERRED):
        completed[_PREFERRED] = bind
    return completed


def read_numa_topology_spec(annotation: Field) -> model.NumaTopologySpec:
    """Return the spec of a numa-topology-spec annotation, absent or not; unknown policies are reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return model.NumaTopologySpec(
        _read_choice(parsed.member(_NUMA_POLICY), NumaPolicy, NumaPolicy.NONE),
        _read_choice(parsed.member(_NUMA_EXCLUSIVE), NumaExclusivity, NumaExclusivity.NONE),
    )


_MOST_NAMED = 5


def warn_of_unknown(pod: Pod) -> None:
    """Warn of annotations with Koordinator's prefixes, and of members of known ones, that have no effect.

    Source: koordinator.md, "Keys on the pod".
    """
    for key, known in _MEMBERS.items():
        document = pod.manifest.annotation(key).json()
        strange = sorted(document.mapping().keys() - set(known))
        for name in strange[:_MOST_NAMED]:
            document.member(name).warn(f"is not known and has no effect; known are {', '.join(known)}")
        if len(strange) > _MOST_NAMED:
            document.warn(f"has {len(strange) - _MOST_NAMED} more members that are not known")
    given = pod.manifest.root.member("metadata").member("annotations").mapping()
    strange = sorted(each for each in given if each.startswith(_PREFIXES) and each not in _ON_PODS)
    for key in strange[:_MOST_NAMED]:
        meant = "".join(f"; did you mean {each}?" for each in get_close_matches(key, _ON_PODS, 1, _CLOSE))
        pod.manifest.annotation(key).warn(f"is not known on pods and has no effect{meant}")
    if len(strange) > _MOST_NAMED:
        more = f"{len(strange) - _MOST_NAMED} more of Koordinator's are not known on pods"
        pod.manifest.root.member("metadata").member("annotations").warn(more)


def _read_choice(
    field: Field, choices: type[_AnnotationChoice], default: _AnnotationChoice
) -> _AnnotationChoice:
    text = field.text() or default
    if text not in set(choices):
        field.complain(f"{text!r} is not one of {', '.join(choice for choice in choices if choice)}")
        return default
    return choices(text)


def read_resource_status(annotation: Field) -> model.ResourceStatus:
    """Return the status of a resource-status annotation, absent or not; what does not parse is reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    by_numa: dict[int, dict[str, int]] = {}
    for entry in parsed.member("numaNodeResources").elements():
        numa = entry.member("node").integer()
        resources = entry.member("resources").members()
        read = {name: amount.quantity(name) for name, amount in resources.items()}
        amounts = {name: base_amount(name, amount) for name, amount in read.items() if amount is not None}
        if numa is not None and numa < 0:
            entry.member("node").complain(f"{numa} is negative")
        elif numa is not None:
            by_numa[numa] = {**by_numa.get(numa, {}), **amounts}
    return model.ResourceStatus(parsed.member("cpuset").cpu_list() or frozenset(), NumaAmounts(by_numa))


def status_document(status: model.ResourceStatus) -> Mapping[str, Any]:
    """Return the annotation of a status, NUMA nodes ascending; empty members are left out.

    Source: koordinator.md, "What is written".
    """
    members: dict[str, str | Sequence[Any]] = {}
    if status.cpus:
        members["cpuset"] = format_cpu_list(status.cpus)
    if status.pools:
        members["cpuSharedPools"] = [{"socket": socket, "node": numa} for socket, numa in status.pools]
    if status.amounts:
        members["numaNodeResources"] = [
            {"node": numa, "resources": quantities(amounts)} for numa, amounts in status.amounts.items()
        ]
    return members


def written_annotations(
    spec: model.ResourceSpec, status: model.ResourceStatus, bind: BindPolicy, strict: bool
) -> dict[str, str]:
    """Return the resource-status of a pod, if it was given something, and its completed resource-spec.

    Source: koordinator.md, "What is written".
    """
    written = {}
    given, completed = status_document(status), completed_spec(spec, bind, strict)
    for key, document in ((RESOURCE_STATUS, given), (RESOURCE_SPEC, completed)):
        if document:
            written[key] = json.dumps(document, separators=(",", ":"))
    return written
