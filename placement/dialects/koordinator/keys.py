"""Labels and annotations of nodes and pods (koordinator.md, "Keys and schemas")."""

from __future__ import annotations

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
