"""The CPUs of a host: where they sit, which ones kubelet pinned, their pools, and which no pod may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from placement.common.manifest import Field, Manifest, Profile
from placement.engine.numa.cpus import CpuTopology, LogicalCpu, SharedPool, find_inconsistencies
from placement.engine.numa.cpuset import CpuSet, format_cpu_list
from placement.engine.numa.demand import NumaPolicy, NumaStrategy
from placement.pods.koordinator import annotations as keys
from placement.pods.model import HostBindPolicy, HostPolicies, KubeletPod, KubeletPolicy, Takeover

_KEYS = {"cpu": "id", "core": "core", "numa": "node", "socket": "socket"}
_SPELLED_FLAGS = {"true": True, "false": False}


def read_cpu_topology(annotation: Field) -> CpuTopology:
    """Return the topology of `{"detail": [{"id", "core", "socket", "node"}]}`; absent = empty.

    Refused: members that are not integers, and every inconsistency, each named with its row.
    Source: koordinator.md, "CPU topology".
    """
    details = annotation.json().member("detail").elements()
    read = [_read_row(detail) for detail in details]
    rows = [row for row in read if row is not None]
    if len(rows) < len(details):
        return CpuTopology()
    inconsistencies = find_inconsistencies(rows)
    for found in inconsistencies:
        details[found.row].member(_KEYS[found.field]).refuse(found.text)
    return CpuTopology() if inconsistencies else CpuTopology(tuple(rows))


def _read_row(detail: Field) -> LogicalCpu | None:
    ids = {field: detail.member(key).integer() for field, key in _KEYS.items()}
    known = {field: number for field, number in ids.items() if number is not None}
    return LogicalCpu(**known) if len(known) == len(ids) else None


def read_known_cpus(field: Field, topology: CpuTopology) -> CpuSet:
    """Return the CPUs of a list that the topology has; the others are left out with a warning.

    Source: koordinator.md, "CPU topology".
    """
    named = field.cpu_list() or frozenset()
    unknown = named - topology.cpus
    if unknown:
        field.warn(f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out")
    return named - unknown


def read_system_cpus(annotation: Field, topology: CpuTopology) -> CpuSet:
    """Return the CPUs that a parsed system-qos-resource annotation takes away from all pods.

    None unless the list is exclusive, which is the default. Source: koordinator.md, "Unallocatable CPUs".
    """
    cpus = read_known_cpus(annotation.member("cpuset"), topology)
    return cpus if annotation.member("cpusetExclusive").flag(default=True) else frozenset()


def read_shared_pools(annotation: Field) -> tuple[SharedPool, ...]:
    """Return the pools of a parsed cpu-shared-pools annotation, as reported, by socket and NUMA node.

    They only serve diagnosis, so unreadable ones are left out and CPUs are not compared with the topology.
    """
    pools = [_read_pool(entry) for entry in annotation.elements()]
    return tuple(sorted((pool for pool in pools if pool), key=lambda pool: (pool.socket, pool.numa)))


def _read_pool(entry: Field) -> SharedPool | None:
    socket, numa = entry.member("socket").integer(), entry.member("node").integer()
    cpus = entry.member("cpuset").cpu_list()
    return None if socket is None or numa is None or cpus is None else SharedPool(socket, numa, cpus)


class PodAllocs(NamedTuple):
    """The pods of a report: `managed` got their CPUs from kubelet, `others` from elsewhere."""

    managed: tuple[KubeletPod, ...]
    others: tuple[KubeletPod, ...]


def read_pod_allocs(allocs: Field, topology: CpuTopology, profile: Profile) -> PodAllocs:
    """Return the entries of a parsed pod-cpu-allocs annotation that name a uid and known CPUs.

    Unusable entries are left out with a warning. The spellings of the design documents, `cpu` for `cpuset`
    and `"true"` for true, are taken with a warning under `design` and refused under `koord-scheduler`, which
    ignores entries that kubelet does not manage.
    Source: koordinator.md, "Unallocatable CPUs", "Reported pods".
    """
    managed: dict[str, KubeletPod] = {}
    others: dict[str, KubeletPod] = {}
    for entry in allocs.elements():
        cpus, is_managed = _cpuset(entry, profile), _is_managed(entry, profile)
        counts = is_managed or profile is Profile.DESIGN
        pod = _read_pod(entry, cpus, topology) if counts else None
        if pod is not None:
            _join(entry, pod, managed if is_managed else others)
    return PodAllocs(tuple(managed.values()), tuple(others.values()))


def _join(entry: Field, pod: KubeletPod, pods: dict[str, KubeletPod]) -> None:
    if pod.uid in pods:
        entry.member("uid").warn(f"{pod.uid!r} is listed twice; its CPUs are joined")
        pod = replace(pod, cpus=pod.cpus | pods[pod.uid].cpus)
    pods[pod.uid] = pod


def _read_pod(entry: Field, cpuset: Field, topology: CpuTopology) -> KubeletPod | None:
    uid = entry.member("uid").text()
    cpus = read_known_cpus(cpuset, topology)
    if not uid:
        entry.member("uid").warn("is missing; the entry is ignored")
    elif not cpus:
        cpuset.warn("names no CPU of the host; the entry is ignored")
    else:
        return KubeletPod(_text(entry, "namespace"), _text(entry, "name"), uid, cpus)
    return None


def _cpuset(entry: Field, profile: Profile) -> Field:
    seed_spelling = entry.member("cpu")
    if entry.member("cpuset").value is not None or seed_spelling.value is None:
        return entry.member("cpuset")
    if profile is Profile.KOORD_SCHEDULER:
        seed_spelling.refuse("the field is called cpuset")
    else:
        seed_spelling.warn("read as cpuset, the name of the field")
    return seed_spelling


def _is_managed(entry: Field, profile: Profile) -> bool:
    flag = entry.member("managedByKubelet")
    if not isinstance(flag.value, str) or flag.value not in _SPELLED_FLAGS:
        return flag.flag(default=False) is True
    if profile is Profile.KOORD_SCHEDULER:
        flag.refuse(f'must be the boolean {flag.value}, not the text "{flag.value}"')
    else:
        flag.warn(f'the text "{flag.value}" is read as the boolean {flag.value}')
    return _SPELLED_FLAGS[flag.value]


def _text(entry: Field, key: str) -> str:
    return entry.member(key).text() or ""


@dataclass(frozen=True, slots=True)
class HostCpus:
    """The CPUs of a host: where they sit, what kubelet does with them, which cannot be allocated.

    `withheld` are the unallocatable CPUs that unbound pods cannot run on either, though no pod holds them:
    the node reservation and an exclusive SYSTEM list. Kubelet's reserved CPUs stay in the pools. `reserved`
    adds kubelet's reserved CPUs to `withheld`; `system` has the exclusive SYSTEM list. `reported_pods` were
    given CPUs by a scheduler.
    """

    topology: CpuTopology
    kubelet: KubeletPolicy
    kubelet_pods: tuple[KubeletPod, ...]
    unallocatable: CpuSet
    withheld: CpuSet
    reserved: CpuSet
    system: CpuSet
    reported_pods: tuple[KubeletPod, ...] = ()

    @property
    def takeover(self) -> Takeover:
        """Return how far the host is taken over from kubelet."""
        return takeover_state(self.kubelet, bool(self.kubelet_pods))


def read_host_cpus(node: Manifest, nrt: Manifest, profile: Profile) -> HostCpus:
    """Return the CPUs of a host, from its manifests.

    Unallocatable are the CPUs of kubelet-managed pods, kubelet's reserved list, the node reservation's list
    and an exclusive SYSTEM list. Each of them fails soft, with a warning.
    Source: koordinator.md, "Unallocatable CPUs".
    """
    topology = read_cpu_topology(nrt.annotation(keys.CPU_TOPOLOGY))
    manager = nrt.annotation(keys.CPU_MANAGER_POLICY).softly().json()
    allocs = nrt.annotation(keys.POD_CPU_ALLOCS).softly()
    pods, reported = read_pod_allocs(allocs.json(), topology, profile)
    kubelet_reserved = read_known_cpus(manager.member("reservedCPUs"), topology)
    system = read_system_cpus(_reported(nrt, node, keys.SYSTEM_QOS_RESOURCE), topology)
    reservation = _reported(nrt, node, keys.RESERVATION).member("reservedCPUs")
    withheld = read_known_cpus(reservation, topology) | system
    cpus = HostCpus(
        topology,
        read_kubelet_policy(manager),
        pods,
        unallocatable=withheld.union(kubelet_reserved, *(pod.cpus for pod in pods)),
        withheld=withheld,
        reserved=withheld | kubelet_reserved,
        system=system,
        reported_pods=reported,
    )
    _warn_of_gaps(cpus, nrt, manager, allocs)
    return cpus


def _reported(nrt: Manifest, node: Manifest, key: str) -> Field:
    """Return the node agent's version of an annotation; while there is none, the operator's on the node."""
    annotation = nrt.annotation(key)
    return (node.annotation(key) if annotation.value is None else annotation).softly().json()


def _warn_of_gaps(cpus: HostCpus, nrt: Manifest, manager: Field, allocs: Field) -> None:
    if not cpus.topology.rows:
        nrt.annotation(keys.CPU_TOPOLOGY).warn("no CPUs are reported; the host cannot take bound pods")
    if len({len(threads) for threads in cpus.topology.cores.values()}) > 1:
        threads = cpus.topology.threads_per_core
        nrt.annotation(keys.CPU_TOPOLOGY).warn(
            f"cores differ in their threads; a whole core counts {threads}"
        )
    if cpus.takeover is Takeover.BLIND:
        manager.member("policy").warn(
            "not reported; CPUs that kubelet pins could be handed out a second time"
        )
    if cpus.kubelet.is_static and allocs.value is None:
        allocs.warn("is missing though kubelet is static; CPUs it pinned could be handed out a second time")


# Manifests reduced to what decides how a host is imported, so that like hosts have equal ones.


ANONYMOUS = "node"

_NODE_KEYS = ("node.koordinator.sh/",)
_REPORT_KEYS = ("node.koordinator.sh/", "kubelet.koordinator.sh/")


def anonymous_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Node that was imported before, reduced to what its import depends on.

    Importing it with its reduced topology gives the same host under the name `ANONYMOUS`.
    """
    metadata, status = _mapping(node, "metadata"), _mapping(node, "status")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": ANONYMOUS,
            "labels": _chosen(metadata, "labels", _NODE_KEYS),
            "annotations": _chosen(metadata, "annotations", _NODE_KEYS),
        },
        "status": {
            "allocatable": status.get("allocatable"),
            "nodeInfo": {"architecture": _mapping(status, "nodeInfo").get("architecture")},
        },
    }


def anonymous_report(nrt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a NodeResourceTopology that was imported before, reduced to what its import depends on."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": ANONYMOUS,
            "annotations": _chosen(_mapping(nrt, "metadata"), "annotations", _REPORT_KEYS),
        },
        "topologyPolicies": nrt.get("topologyPolicies"),
        "zones": [_zone(zone) for zone in nrt.get("zones") or ()],
    }


def _zone(zone: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": zone.get("name"),
        "type": zone.get("type"),
        "resources": [
            {"name": entry.get("name"), "allocatable": entry.get("allocatable")}
            for entry in zone.get("resources") or ()
        ],
    }


def _chosen(metadata: Mapping[str, Any], key: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    return {name: text for name, text in _mapping(metadata, key).items() if name.startswith(prefixes)}


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = parent.get(key) or {}
    return found


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


# The policies of a host, by its labels, its NodeResourceTopology and kubelet.


FULL_PCPUS_ONLY_OPTION = "full-pcpus-only"


_SUFFIXES = ("PodLevel", "ContainerLevel")


DISTRIBUTE_OPTION = "distribute-cpus-across-numa"


_SPELLINGS = {"PCPUOnly": HostBindPolicy.FULL_PCPUS_ONLY}


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
        bind=_read_bind_policy(node.label(keys.CPU_BIND_POLICY), kubelet, profile, whole_cores_only),
        numa=_read_numa_label(node, profile) or reported,
        strategy=_read_strategy(node.label(keys.NUMA_ALLOCATE_STRATEGY), profile),
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
    real, alias = node.label(keys.NUMA_TOPOLOGY_POLICY), node.label(keys.NUMA_TOPOLOGY_POLICY_ALIAS)
    if alias.value is None:
        return real
    if real.value is not None or profile is Profile.KOORD_SCHEDULER:
        alias.warn(f"ignored; the label is called {keys.NUMA_TOPOLOGY_POLICY}")
        return real
    alias.warn(f"read as {keys.NUMA_TOPOLOGY_POLICY}, the name of the label")
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
