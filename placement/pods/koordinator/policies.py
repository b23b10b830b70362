"""Labels and annotations of nodes and pods (koordinator.md, "Keys and schemas")."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from placement.common.manifest import Field, Manifest, Profile
from placement.engine.numa.demand import NumaPolicy, NumaStrategy
from placement.pods.manifests.pod import Pod, pod_requests
from placement.pods.model import (
    HostBindPolicy,
    HostPolicies,
    KubeletPolicy,
    KubernetesQos,
    PriorityClass,
    QosClass,
    Takeover,
)

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
EXCLUSIVITY_GROUP = "placement/exclusivity-group"
SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint"


# What kubelet's own CPU and topology managers do on a host, as the node agent reports it.


def read_kubelet_policy(annotation: Field) -> KubeletPolicy:
    """Return the policy of a parsed cpu-manager-policy annotation; unreadable parts count as not reported."""
    policy = annotation.member("policy").text() or ""
    if policy not in ("static", "none", ""):
        annotation.member("policy").warn(f"unknown CPU manager policy {policy!r}")
    options = annotation.member("options").members()
    texts = {name: option.text() for name, option in options.items()}
    return KubeletPolicy(policy, {name: text for name, text in texts.items() if text is not None})


def takeover_state(kubelet: KubeletPolicy, has_kubelet_pods: bool) -> Takeover:
    """Return mixed while kubelet pins CPUs or may pin them, taken over if not, blind if not reported.

    Source: koordinator.md, "Taking a host over".
    """
    if has_kubelet_pods or kubelet.is_static:
        return Takeover.MIXED
    return Takeover.TAKEN_OVER if kubelet.policy == "none" else Takeover.BLIND


# QoS classes of pods, Koordinator's and Kubernetes' own, and their priority classes.


_COMPUTE = ("cpu", "memory")


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


def raw_qos(pod: Pod) -> QosClass:
    """Return the class a pod's label names; UNSET if it names none that exists. Annotations do not count.

    Source: koordinator.md, "QoS class".
    """
    label = pod.label(QOS_CLASS)
    return QosClass(label) if label in set(QosClass) else QosClass.UNSET


def kubernetes_qos(pod: Pod) -> KubernetesQos:
    """Return the class its status reports, else the one that follows from cpu and memory of all containers.

    Source: koordinator.md, "QoS class".
    """
    if pod.reported_qos in set(KubernetesQos):
        return KubernetesQos(pod.reported_qos)
    requests = limits = Fraction(0)
    guaranteed = True
    for resource in _COMPUTE:
        asked = sum((item.requests.get(resource, Fraction(0)) for item in pod.all_containers), Fraction(0))
        capped = sum((item.limits.get(resource, Fraction(0)) for item in pod.all_containers), Fraction(0))
        limited = all(item.limits.get(resource) for item in pod.all_containers)
        guaranteed = guaranteed and limited and asked == capped
        requests, limits = requests + asked, limits + capped
    if not requests and not limits:
        return KubernetesQos.BEST_EFFORT
    return KubernetesQos.GUARANTEED if guaranteed else KubernetesQos.BURSTABLE


def qos_with_default(pod: Pod, guaranteed: QosClass = QosClass.LSR) -> QosClass:
    """Return the class of the label, else what the Kubernetes class stands for, never UNSET.

    Source: koordinator.md, "QoS class".
    """
    defaults = {
        KubernetesQos.GUARANTEED: guaranteed,
        KubernetesQos.BURSTABLE: QosClass.LS,
        KubernetesQos.BEST_EFFORT: QosClass.BE,
    }
    return raw_qos(pod) or defaults[kubernetes_qos(pod)]


def running_qos(pod: Pod, kubelet: KubeletPolicy) -> QosClass:
    """Return how a pod is treated on the host it runs on, where kubelet has that policy.

    Without a label a Guaranteed pod with whole CPUs counts as LSR where kubelet is static and pins them, and
    otherwise runs in the LS pool like a Burstable one. Source: koordinator.md, "QoS class".
    """
    cpu = pod_requests(pod).get("cpu", Fraction(0))
    pinned = kubelet.is_static and cpu > 0 and cpu.denominator == 1
    return qos_with_default(pod, guaranteed=QosClass.LSR if pinned else QosClass.LS)


def is_bound_eligible(pod: Pod, guaranteed: QosClass) -> bool:
    """Return whether a pod may get CPUs of its own wherever it runs: LSE and LSR pods of class prod may.

    `guaranteed` is what Guaranteed stands for where the priority class is derived.
    Source: koordinator.md, "Bound pods".
    """
    priority = raw_priority(pod) or qos_with_default(pod, guaranteed).default_priority
    return raw_qos(pod).owns_cpus and priority is PriorityClass.PROD


# The policies of a host, by its labels, its NodeResourceTopology and kubelet, and what pods get.


FULL_PCPUS_ONLY_OPTION = "full-pcpus-only"
_SUFFIXES = ("PodLevel", "ContainerLevel")
DISTRIBUTE_OPTION = "distribute-cpus-across-numa"


_SPELLINGS = {"PCPUOnly": HostBindPolicy.FULL_PCPUS_ONLY}
_POD_POLICIES = {HostBindPolicy.FULL_PCPUS_ONLY: "FullPCPUs", HostBindPolicy.SPREAD_BY_PCPUS: "SpreadByPCPUs"}


def host_bind_policy(
    label: str, kubelet: KubeletPolicy, profile: Profile = Profile.KOORD_SCHEDULER
) -> HostBindPolicy:
    """Return the effective policy of a host with that label, which counts as None if unknown.

    Kubelet's option full-pcpus-only beats a SpreadByPCPUs label; under `design` the label beats the option.
    Source: koordinator.md, "Effective host bind policy".
    """
    if profile is Profile.DESIGN:
        label = _SPELLINGS.get(label, label)
        if label in set(HostBindPolicy):
            return HostBindPolicy(label)
    if kubelet.has_option(FULL_PCPUS_ONLY_OPTION):
        return HostBindPolicy.FULL_PCPUS_ONLY
    return HostBindPolicy(label) if label in set(HostBindPolicy) else HostBindPolicy.NONE


def pod_bind_policy(host: HostBindPolicy, required: str, preferred: str) -> tuple[str, bool]:
    """Return the policy a bound pod gets on a host and whether it is strict; empty policies are not set.

    What the pod requires comes first, then the host (both strict), then what the pod prefers.
    Source: koordinator.md, "Strict bind policy".
    """
    strict = required or _POD_POLICIES.get(host, "")
    return (strict, True) if strict else (preferred, False)


def translate_topology_policy(entry: str, profile: Profile) -> NumaPolicy | None:
    """Return the policy that one entry of topologyPolicies stands for; None if it is not recognised.

    Plain, pod level and container level spellings of the three aligning policies are recognised, except
    `SingleNUMANodeContainerLevel` under `koord-scheduler`. Source: koordinator.md, "topologyPolicies".
    """
    if entry == "SingleNUMANodeContainerLevel" and profile is Profile.KOORD_SCHEDULER:
        return None
    plain = next((entry.removesuffix(suffix) for suffix in _SUFFIXES if entry.endswith(suffix)), entry)
    return NumaPolicy(plain) if plain in set(NumaPolicy) - {NumaPolicy.NONE} else None


def first_topology_policy(entries: Sequence[str], profile: Profile) -> NumaPolicy | None:
    """Return the policy of the first recognised entry of topologyPolicies; None if there is none."""
    translated = (translate_topology_policy(entry, profile) for entry in entries)
    return next((policy for policy in translated if policy is not None), None)


def label_strategy(label: str, profile: Profile) -> NumaStrategy | None:
    """Return the strategy of a host's label; None if it is empty, so that the cluster's setting applies.

    Anything but MostAllocated means emptiest first; DistributeEvenly is more than that only under `design`.
    Source: koordinator.md, "Keys on the node", "Profiles".
    """
    if not label:
        return None
    if label == NumaStrategy.MOST_ALLOCATED:
        return NumaStrategy.MOST_ALLOCATED
    if label == NumaStrategy.DISTRIBUTE_EVENLY and profile is Profile.DESIGN:
        return NumaStrategy.DISTRIBUTE_EVENLY
    return NumaStrategy.LEAST_ALLOCATED


def read_host_policies(
    node: Manifest, topology_policies: Field, kubelet: KubeletPolicy, profile: Profile
) -> HostPolicies:
    """Return the effective policies of a host; unknown and overruled values are warnings.

    Source: koordinator.md, "Keys on the node", "topologyPolicies", "Profiles".
    """
    reported = _read_topology_policies(topology_policies, profile)
    whole_cores_only = profile is Profile.DESIGN and _is_arm(node)
    return HostPolicies(
        bind=_read_bind_policy(node.label(CPU_BIND_POLICY), kubelet, profile, whole_cores_only),
        numa=_read_numa_label(node, profile) or reported,
        strategy=_read_strategy(node.label(NUMA_ALLOCATE_STRATEGY), profile),
        distributes_over_numa=profile is Profile.DESIGN and kubelet.has_option(DISTRIBUTE_OPTION),
        whole_cores_only=whole_cores_only,
    )


def _is_arm(node: Manifest) -> bool:
    architecture = node.root.member("status").member("nodeInfo").member("architecture").value
    return architecture in ("arm64", "arm")


def _read_bind_policy(
    label: Field, kubelet: KubeletPolicy, profile: Profile, whole_cores_only: bool
) -> HostBindPolicy:
    value = label.text() or ""
    if profile is Profile.DESIGN and label.value == "":
        value = HostBindPolicy.NONE
    policy = host_bind_policy(value, kubelet, profile)
    if profile is Profile.DESIGN and value in _SPELLINGS:
        label.warn(f"{value!r} is read as {policy}")
    elif value and value not in set(HostBindPolicy):
        label.warn(f"unknown bind policy {value!r} counts as None")
    elif value == HostBindPolicy.SPREAD_BY_PCPUS and policy != value:
        label.warn("overruled by kubelet's option full-pcpus-only")
    if whole_cores_only and policy is HostBindPolicy.SPREAD_BY_PCPUS:
        label.warn(f"{policy} has no effect on ARM, which knows FullPCPUs only")
        return HostBindPolicy.NONE
    return policy


def _read_strategy(label: Field, profile: Profile) -> NumaStrategy | None:
    value = label.text() or ""
    strategy = label_strategy(value, profile)
    if strategy is not None and value != strategy:
        label.warn(f"{value!r} counts as {strategy}")
    return strategy


def _read_numa_label(node: Manifest, profile: Profile) -> NumaPolicy | None:
    label = _numa_label(node, profile)
    value = label.text() or ""
    if value and value not in set(NumaPolicy):
        label.warn(f"unknown NUMA policy {value!r} counts as None")
        return NumaPolicy.NONE
    return NumaPolicy(value) if value else None


def _numa_label(node: Manifest, profile: Profile) -> Field:
    real, alias = node.label(NUMA_TOPOLOGY_POLICY), node.label(NUMA_TOPOLOGY_POLICY_ALIAS)
    if alias.value is None:
        return real
    if real.value is not None or profile is Profile.KOORD_SCHEDULER:
        alias.warn(f"ignored; the label is called {NUMA_TOPOLOGY_POLICY}")
        return real
    alias.warn(f"read as {NUMA_TOPOLOGY_POLICY}, the name of the label")
    return alias


def _read_topology_policies(policies: Field, profile: Profile) -> NumaPolicy | None:
    entries = [(entry, entry.text()) for entry in policies.elements()]
    for entry, text in entries:
        if not text or text == NumaPolicy.NONE:
            continue
        policy = translate_topology_policy(text, profile)
        if policy is None:
            entry.warn(f"{text!r} is not understood; ignored")
        elif text.endswith("ContainerLevel"):
            entry.warn(
                f"{text!r} aligns whole pods like {policy}PodLevel: there is no alignment per container"
            )
    return first_topology_policy([text for _, text in entries if text], profile)
