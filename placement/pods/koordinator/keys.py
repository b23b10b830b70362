"""Labels and annotations of nodes and pods (koordinator.md, "Keys and schemas")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from placement.common.manifest import Field

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

GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
GANG_TOTAL_NUMBER = "gang.scheduling.koordinator.sh/total-number"
GANG_MODE = "gang.scheduling.koordinator.sh/mode"
GANG_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
POD_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"


# What kubelet's own CPU and topology managers do on a host, as the node agent reports it.


STATIC = "static"


@dataclass(frozen=True, slots=True)
class KubeletPolicy:
    """Kubelet's CPU manager policy (`static`, `none`, empty = not reported) and its options."""

    policy: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """Return whether kubelet pins CPUs itself."""
        return self.policy == STATIC

    def has_option(self, name: str) -> bool:
        """Return whether the static policy runs with that option; other policies have none."""
        return self.is_static and self.options.get(name) == "true"


class Takeover(StrEnum):
    """A state of taking the CPUs of a host over from kubelet's static CPU manager to Koordinator."""

    MIXED = "mixed"
    TAKEN_OVER = "taken over"
    BLIND = "blind"


def read_kubelet_policy(annotation: Field) -> KubeletPolicy:
    """Return the policy of a parsed cpu-manager-policy annotation; unreadable parts count as not reported."""
    policy = annotation.member("policy").text() or ""
    if policy not in (STATIC, "none", ""):
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
