"""The CPUs of a host: where they sit, which ones kubelet pinned, their pools, and which no pod may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placement.common.documents import TOPOLOGY_API_VERSIONS
from placement.common.manifest import Field, Manifest, ManifestReport, Profile
from placement.engine.numa import cpus as numa_cpus
from placement.engine.numa.host import NumaPolicy, NumaStrategy
from placement.pods.koordinator import annotations as keys
from placement.pods.state import model

_KEYS = {"cpu": "id", "core": "core", "numa": "node", "socket": "socket"}
_SPELLED_FLAGS = {"true": True, "false": False}


def read_cpu_topology(annotation: Field, profile: Profile) -> numa_cpus.CpuTopology:
    """Return the topology of `{"detail": [{"id", "core", "socket", "node"}]}`; absent = empty.

    CPUs are counted per core under `design`. Refused: members that are not integers, and every
    inconsistency, each named with its row. Source: koordinator.md, "CPU topology", "Profiles".
    """
    details = annotation.json().member("detail").elements()
    rows = []
    for detail in details:
        ids = {field: detail.member(key).integer() for field, key in _KEYS.items()}
        known = {field: number for field, number in ids.items() if number is not None}
        if len(known) == len(ids):
            rows.append(numa_cpus.LogicalCpu(**known))
    if len(rows) < len(details):
        return numa_cpus.CpuTopology()
    inconsistencies = numa_cpus.find_inconsistencies(rows)
    for found in inconsistencies:
        details[found.row].member(_KEYS[found.field]).refuse(found.text)
    if inconsistencies:
        return numa_cpus.CpuTopology()
    return numa_cpus.CpuTopology(tuple(rows), per_core=profile is Profile.DESIGN)


def read_known_cpus(field: Field, topology: numa_cpus.CpuTopology) -> numa_cpus.CpuSet:
    """Return the CPUs of a list that the topology has; the others are left out with a warning.

    Source: koordinator.md, "CPU topology".
    """
    named = field.cpu_list(numa_cpus.parse_typed_cpu_list) or frozenset()
    unknown = named - topology.cpus
    if unknown:
        field.warn(f"CPUs {numa_cpus.format_cpu_list(unknown)} are not in the cpu-topology; left out")
    return named - unknown


def read_system_cpus(annotation: Field, topology: numa_cpus.CpuTopology) -> numa_cpus.CpuSet:
    """Return the CPUs that a parsed system-qos-resource annotation takes away from all pods.

    None unless the list is exclusive, which is the default. Source: koordinator.md, "Unallocatable CPUs".
    """
    cpus = read_known_cpus(annotation.member("cpuset"), topology)
    is_shared = annotation.member("cpusetExclusive").flag(default=True) is False
    return frozenset() if is_shared else cpus


def read_shared_pools(annotation: Field) -> tuple[numa_cpus.SharedPool, ...]:
    """Return the pools of a parsed cpu-shared-pools annotation, as reported, by socket and NUMA node.

    They only serve diagnosis, so unreadable ones are left out and CPUs are not compared with the topology.
    """
    pools = []
    for entry in annotation.elements():
        socket, numa = entry.member("socket").integer(), entry.member("node").integer()
        cpus = entry.member("cpuset").cpu_list()
        if socket is not None and numa is not None and cpus is not None:
            pools.append(numa_cpus.SharedPool(socket, numa, cpus))
    return tuple(sorted(pools, key=lambda pool: (pool.socket, pool.numa)))


def read_pod_allocs(
    allocs: Field, topology: numa_cpus.CpuTopology, profile: Profile
) -> tuple[tuple[model.KubeletPod, ...], tuple[model.KubeletPod, ...]]:
    """Return the pods of a parsed pod-cpu-allocs annotation that kubelet manages, and the others.

    Entries without known CPUs are left out with a warning. The spellings of the design documents,
    `cpu` for `cpuset` and `"true"` for true, are taken with a warning under `design` and refused under
    `koord-scheduler`, which ignores entries that kubelet does not manage.
    Source: koordinator.md, "Unallocatable CPUs", "Reported pods".
    """
    managed: dict[str, model.KubeletPod] = {}
    others: dict[str, model.KubeletPod] = {}
    is_strict = profile is Profile.KOORD_SCHEDULER
    for entry in allocs.elements():
        cpuset = _cpuset_of(entry, is_strict)
        is_managed = _is_managed(entry.member("managedByKubelet"), is_strict)
        if is_strict and not is_managed:
            continue
        uid, cpus = entry.member("uid").text(), read_known_cpus(cpuset, topology)
        if not uid:
            entry.member("uid").complain("is missing")
            continue
        if not cpus:
            cpuset.warn("names no CPU of the host; the entry is ignored")
            continue
        pods = managed if is_managed else others
        namespace, name = (entry.member(key).text() or "" for key in ("namespace", "name"))
        if uid in pods:
            entry.member("uid").warn(f"{uid!r} is listed twice; its CPUs are joined")
            cpus |= pods[uid].cpus
        pods[uid] = model.KubeletPod(namespace, name, uid, cpus)
    return tuple(managed.values()), tuple(others.values())


def _cpuset_of(entry: Field, is_strict: bool) -> Field:
    """Return the CPU list of an entry, which the design documents call `cpu`."""
    cpuset, cpu = entry.member("cpuset"), entry.member("cpu")
    if cpuset.value is not None or cpu.value is None:
        return cpuset
    if is_strict:
        cpu.refuse("the field is called cpuset")
    else:
        cpu.warn("read as cpuset, the name of the field")
    return cpu


def _is_managed(flag: Field, is_strict: bool) -> bool:
    """Return whether kubelet manages the pod of an entry; the design documents write a text."""
    if not isinstance(flag.value, str) or flag.value not in _SPELLED_FLAGS:
        return flag.flag(default=False) is True
    if is_strict:
        flag.refuse(f'must be the boolean {flag.value}, not the text "{flag.value}"')
    else:
        flag.warn(f'the text "{flag.value}" is read as the boolean {flag.value}')
    return _SPELLED_FLAGS[flag.value]


_CLOSED = "until it can be read, no pod gets CPUs of its own there"


def read_host_cpus(node_manifest: Manifest, nrt_manifest: Manifest, profile: Profile) -> model.HostCpus:
    """Return the CPUs of a host, from its manifests. Source: koordinator.md, "Unallocatable CPUs"."""
    reported = nrt_manifest.annotation(keys.CPU_TOPOLOGY)
    topology = read_cpu_topology(reported, profile)
    cpus = read_withheld(node_manifest, nrt_manifest, topology, profile)
    if not topology.logical_cpus:
        reported.warn("no CPUs are reported; the host cannot take bound pods")
    for warning in _joined(topology):
        reported.warn(warning)
    if topology.is_uneven and not topology.per_core:
        reported.warn(f"cores differ in their threads; a whole core counts {topology.threads_per_core}")
    twice = "could be handed out a second time"
    # Reports of other agents than Koordinator's name no CPUs, so none can be handed out.
    names_cpus = nrt_manifest.root.member("apiVersion").value != TOPOLOGY_API_VERSIONS[1]
    if cpus.takeover is model.Takeover.BLIND and (names_cpus or topology.logical_cpus):
        manager = nrt_manifest.annotation(keys.CPU_MANAGER_POLICY)
        manager.report.warn(f"{manager.path}.policy: not reported; CPUs that kubelet pins {twice}")
    allocs = nrt_manifest.annotation(keys.POD_CPU_ALLOCS)
    if cpus.kubelet.is_static and allocs.value is None:
        allocs.warn(f"is missing though kubelet is static; CPUs it pinned {twice}")
    return cpus


def _joined(topology: numa_cpus.CpuTopology) -> Iterator[str]:
    """Yield in words which sockets count as one, because a NUMA node lies in several."""
    together: dict[int, set[int]] = {}
    for socket, joined in topology.joined_sockets.items():
        together.setdefault(joined, set()).add(socket)
    for joined, sockets in sorted(together.items()):
        numa_ids = [numa for numa, socket in topology.socket_of_numa.items() if socket == joined]
        if len(sockets) > 1:
            which = f"NUMA nodes {numa_cpus.format_cpu_list(numa_ids)} lie"
            if len(numa_ids) == 1:
                which = f"NUMA node {numa_ids[0]} lies"
            listed = numa_cpus.format_cpu_list(sockets)
            yield f"{which} in sockets {listed}, which count as one socket"


def read_withheld(
    node_manifest: Manifest, nrt_manifest: Manifest, topology: numa_cpus.CpuTopology, profile: Profile
) -> model.HostCpus:
    """Return the CPUs of a host with that topology, with what its manifests withhold from pods.

    Unallocatable are the CPUs of kubelet-managed pods, kubelet's reserved list, the node reservation's list
    and an exclusive SYSTEM list. An unreadable one may name any CPU: it is `unreadable`, with a
    warning, and no pod gets CPUs of its own there. Source: koordinator.md, "Unallocatable CPUs".
    """
    own_report = ManifestReport(consequence=_CLOSED, withholds=True)

    def read(annotation: Field) -> Field:
        return annotation.softly().reported_to(own_report).json()

    manager = read(nrt_manifest.annotation(keys.CPU_MANAGER_POLICY))
    pods, reported = read_pod_allocs(read(nrt_manifest.annotation(keys.POD_CPU_ALLOCS)), topology, profile)
    kubelet_reserved = read_known_cpus(manager.member("reservedCPUs"), topology)
    system = read_system_cpus(
        read(_reported(nrt_manifest, node_manifest, keys.SYSTEM_QOS_RESOURCE)), topology
    )
    reservation = read(_reported(nrt_manifest, node_manifest, keys.RESERVATION))
    withheld = read_known_cpus(reservation.member("reservedCPUs"), topology) | system
    kubelet = read_kubelet_policy(manager)
    nrt_manifest.root.report.include(own_report)
    return model.HostCpus(
        topology,
        kubelet,
        pods,
        unallocatable_cpus=withheld.union(kubelet_reserved, *(pod.cpus for pod in pods)),
        withheld_cpus=withheld,
        reserved_cpus=withheld | kubelet_reserved,
        system_cpus=system,
        reported_pods=reported,
        unreadable=own_report.overlooked,
    )


def _reported(nrt_manifest: Manifest, node_manifest: Manifest, key: str) -> Field:
    """Return the node agent's version of an annotation; while there is none, the operator's on the node."""
    annotation = nrt_manifest.annotation(key)
    return node_manifest.annotation(key) if annotation.value is None else annotation


def read_kubelet_policy(annotation: Field) -> model.KubeletPolicy:
    """Return the policy of a parsed cpu-manager-policy annotation; unreadable parts count as not reported."""
    policy = annotation.member("policy").text() or ""
    if policy not in ("static", "none", ""):
        annotation.member("policy").complain(f"unknown CPU manager policy {policy!r}")
    options = annotation.member("options").members()
    texts = {name: option.text() for name, option in options.items()}
    return model.KubeletPolicy(policy, {name: text for name, text in texts.items() if text is not None})


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
        "apiVersion": nrt.get("apiVersion"),
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": ANONYMOUS,
            "annotations": _chosen(_mapping(nrt, "metadata"), "annotations", _REPORT_KEYS),
        },
        "topologyPolicies": nrt.get("topologyPolicies"),
        "attributes": [
            {"name": each.get("name"), "value": each.get("value")}
            for each in _mappings(nrt, "attributes")
            if each.get("name") in (_MANAGER_POLICY, _MANAGER_SCOPE)
        ],
        "zones": [
            {
                "name": zone.get("name"),
                "type": zone.get("type"),
                "resources": [
                    {"name": entry.get("name"), "allocatable": entry.get("allocatable")}
                    for entry in _mappings(zone, "resources")
                ],
            }
            for zone in _mappings(nrt, "zones")
        ],
    }


def _chosen(metadata: Mapping[str, Any], key: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    return {name: text for name, text in _mapping(metadata, key).items() if name.startswith(prefixes)}


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def _mappings(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the elements of a list; one that is null is an empty mapping, as when it is imported."""
    found = parent.get(key)
    elements = found if isinstance(found, list) else []
    return [each if isinstance(each, Mapping) else {} for each in elements]


_SUFFIXES = ("PodLevel", "ContainerLevel")
_MANAGER_POLICY, _MANAGER_SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_MANAGER_POLICIES = {
    "none": None,
    "best-effort": NumaPolicy.BEST_EFFORT,
    "restricted": NumaPolicy.RESTRICTED,
    "single-numa-node": NumaPolicy.SINGLE_NUMA_NODE,
}
_SPELLINGS = {"PCPUOnly": model.HostBindPolicy.FULL_PCPUS_ONLY}


def read_host_policies(
    node_manifest: Manifest, nrt_manifest: Manifest, kubelet: model.KubeletPolicy, profile: Profile
) -> model.HostPolicies:
    """Return the effective policies of a host; unknown and overruled values are warnings.

    Source: koordinator.md, "Keys on the node", "topologyPolicies", "Profiles".
    """
    is_design = profile is Profile.DESIGN
    attributes = {
        entry.member("name").text(): entry.member("value")
        for entry in nrt_manifest.root.member("attributes").elements()
    }
    if _MANAGER_POLICY in attributes:
        scope = attributes.get(_MANAGER_SCOPE)
        reported = _read_manager_policy(attributes[_MANAGER_POLICY], scope)
    else:
        reported = _read_topology_policies(nrt_manifest.root.member("topologyPolicies"), profile)
    architecture = node_manifest.root.member("status").member("nodeInfo").member("architecture").value
    whole_cores_only = is_design and architecture in ("arm64", "arm")
    bind = _read_bind_policy(node_manifest.label(keys.CPU_BIND_POLICY), kubelet, profile, whole_cores_only)
    numa = _read_numa_label(node_manifest, profile) or reported
    label = node_manifest.label(keys.NUMA_ALLOCATE_STRATEGY)
    named = label.text() or ""
    strategy = label_strategy(named, profile)
    if strategy is not None and named != strategy:
        label.warn(f"{named!r} counts as {strategy}")
    distributes = is_design and kubelet.has_option("distribute-cpus-across-numa")
    return model.HostPolicies(bind, numa, strategy, distributes, whole_cores_only)


def _read_manager_policy(policy: Field, scope: Field | None) -> NumaPolicy | None:
    """Return the policy of kubelet's topology manager, None if that is none; another one is ignored.

    Source: koordinator.md, "topologyPolicies".
    """
    named = policy.text()
    if named not in _MANAGER_POLICIES:
        policy.warn(f"{named!r} is not understood; ignored")
        return None
    if named != "none" and scope is not None and scope.value == "container":
        scope.warn("'container' aligns whole pods like 'pod': there is no alignment per container")
    return _MANAGER_POLICIES[named]


def _read_topology_policies(policies: Field, profile: Profile) -> NumaPolicy | None:
    """Return the policy of the first entry that is recognised; None if there is none.

    Plain, pod level and container level spellings of the three aligning policies are recognised, except
    `SingleNUMANodeContainerLevel` under `koord-scheduler`. Source: koordinator.md, "topologyPolicies".
    """
    first = None
    for entry in policies.elements():
        text = entry.text()
        if not text or text == NumaPolicy.NONE:
            continue
        plain = next((text.removesuffix(suffix) for suffix in _SUFFIXES if text.endswith(suffix)), text)
        is_ignored = text == "SingleNUMANodeContainerLevel" and profile is Profile.KOORD_SCHEDULER
        if is_ignored or plain not in set(NumaPolicy) - {NumaPolicy.NONE}:
            entry.warn(f"{text!r} is not understood; ignored")
            continue
        first = first or NumaPolicy(plain)
        if text.endswith("ContainerLevel"):
            level = f"{plain}PodLevel"
            entry.warn(f"{text!r} aligns whole pods like {level}: there is no alignment per container")
    return first


def _read_bind_policy(
    label: Field, kubelet: model.KubeletPolicy, profile: Profile, whole_cores_only: bool
) -> model.HostBindPolicy:
    value = label.text() or ""
    if profile is Profile.DESIGN and label.value == "":
        value = model.HostBindPolicy.NONE
    policy = host_bind_policy(value, kubelet, profile)
    if profile is Profile.DESIGN and value in _SPELLINGS:
        label.warn(f"{value!r} is read as {policy}")
    elif value and value not in set(model.HostBindPolicy):
        label.warn(f"unknown bind policy {value!r} counts as None")
    elif value == model.HostBindPolicy.SPREAD_BY_PCPUS and policy != value:
        label.warn("overruled by kubelet's option full-pcpus-only")
    if whole_cores_only and policy is model.HostBindPolicy.SPREAD_BY_PCPUS:
        label.warn(f"{policy} has no effect on ARM, which knows FullPCPUs only")
        return model.HostBindPolicy.NONE
    return policy


def host_bind_policy(
    label: str, kubelet: model.KubeletPolicy, profile: Profile = Profile.KOORD_SCHEDULER
) -> model.HostBindPolicy:
    """Return the effective policy of a host with that label, which counts as None if unknown.

    Kubelet's option full-pcpus-only beats a SpreadByPCPUs label; under `design` the label beats the option.
    Source: koordinator.md, "Effective host bind policy".
    """
    is_design = profile is Profile.DESIGN
    spelled = _SPELLINGS.get(label, label) if is_design else label
    named = model.HostBindPolicy(spelled) if spelled in set(model.HostBindPolicy) else None
    if kubelet.has_option("full-pcpus-only") and not (is_design and named):
        return model.HostBindPolicy.FULL_PCPUS_ONLY
    return named or model.HostBindPolicy.NONE


def _read_numa_label(node_manifest: Manifest, profile: Profile) -> NumaPolicy | None:
    label, alias = (
        node_manifest.label(keys.NUMA_TOPOLOGY_POLICY),
        node_manifest.label(keys.NUMA_TOPOLOGY_POLICY_ALIAS),
    )
    if alias.value is not None and (label.value is not None or profile is Profile.KOORD_SCHEDULER):
        alias.warn(f"ignored; the label is called {keys.NUMA_TOPOLOGY_POLICY}")
    elif alias.value is not None:
        alias.warn(f"read as {keys.NUMA_TOPOLOGY_POLICY}, the name of the label")
        label = alias
    value = label.text() or ""
    if value and value not in set(NumaPolicy):
        label.warn(f"unknown NUMA policy {value!r} counts as None")
        return NumaPolicy.NONE
    return NumaPolicy(value) if value else None


def label_strategy(label: str, profile: Profile) -> NumaStrategy | None:
    """Return the strategy of a host's label; None if it is empty, so that the cluster's setting applies.

    Anything but MostAllocated means emptiest first; DistributeEvenly is more than that only under `design`.
    Source: koordinator.md, "Keys on the node", "Profiles".
    """
    if not label:
        return None
    known = {NumaStrategy.MOST_ALLOCATED}
    if profile is Profile.DESIGN:
        known.add(NumaStrategy.DISTRIBUTE_EVENLY)
    return NumaStrategy(label) if label in known else NumaStrategy.LEAST_ALLOCATED
