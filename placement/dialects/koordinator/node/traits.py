"""The traits of imported hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from placement.dialects.koordinator.node.host_policies import HostBindPolicy, HostPolicies
from placement.domain.traits import NUMA_ROOT
from placement.kubernetes.manifest import Field
from placement.numa.cpus import CpuTopology
from placement.numa.demand import NumaPolicy, NumaStrategy

_OTHER = re.compile(r"[^A-Z0-9_]")
_LONGEST_TRAIT = 255

NUMA_TRAITS = frozenset({NUMA_ROOT})

_ARCHITECTURES = {"amd64": "HW_ARCH_X86_64", "arm64": "HW_ARCH_AARCH64"}
BIND_TRAITS = {
    HostBindPolicy.FULL_PCPUS_ONLY: "CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY",
    HostBindPolicy.SPREAD_BY_PCPUS: "CUSTOM_KOORD_BIND_SPREAD_BY_PCPUS",
}
NUMA_POLICY_TRAITS = {
    NumaPolicy.BEST_EFFORT: "CUSTOM_KOORD_NUMA_POLICY_BEST_EFFORT",
    NumaPolicy.RESTRICTED: "CUSTOM_KOORD_NUMA_POLICY_RESTRICTED",
    NumaPolicy.SINGLE_NUMA_NODE: "CUSTOM_KOORD_NUMA_POLICY_SINGLE_NUMA_NODE",
}
_NUMA_STRATEGY = {
    NumaStrategy.MOST_ALLOCATED: "CUSTOM_KOORD_NUMA_STRATEGY_MOST",
    NumaStrategy.LEAST_ALLOCATED: "CUSTOM_KOORD_NUMA_STRATEGY_LEAST",
    NumaStrategy.DISTRIBUTE_EVENLY: "CUSTOM_KOORD_NUMA_STRATEGY_EVEN",
}


def host_traits(
    policies: HostPolicies, topology: CpuTopology, kubelet_static: bool, architecture: str | None
) -> frozenset[str]:
    """The traits of the root provider (koordinator.md, "Traits")."""
    named = (
        BIND_TRAITS.get(policies.bind),
        NUMA_POLICY_TRAITS.get(policies.numa) if policies.numa else None,
        _NUMA_STRATEGY.get(policies.strategy) if policies.strategy else None,
        architecture,
        "CUSTOM_KOORD_KUBELET_STATIC" if kubelet_static else None,
    )
    return frozenset([trait for trait in named if trait is not None] + list(_thread_traits(topology)))


def _thread_traits(topology: CpuTopology) -> Iterator[str]:
    threads = topology.threads_per_core
    if not threads:
        yield "CUSTOM_KOORD_NO_CPU_TOPOLOGY"
        return
    yield f"CUSTOM_SMT_{threads}"
    if threads > 1:
        yield "HW_CPU_HYPERTHREADING"


def architecture_trait(architecture: Field) -> str | None:
    """The trait of `status.nodeInfo.architecture`; none, with a warning, if that is missing or unknown."""
    name = architecture.text()
    if name not in _ARCHITECTURES:
        architecture.warn(f"no trait for the architecture {name!r}" if name else "is missing")
        return None
    return _ARCHITECTURES[name]


def label_trait(key: str, value: str) -> str | None:
    """The trait of a label with that value; None if it would be longer than a trait may be.

    Source: koordinator.md, "Traits".
    """
    name = _OTHER.sub("_", f"CUSTOM_LABEL_{key}_{value}".upper())
    return name if len(name) <= _LONGEST_TRAIT else None


def label_traits(labels: Mapping[str, Field]) -> frozenset[str]:
    """The traits of the labels of a node by their keys; what cannot be a trait is left out with a warning."""
    found = set()
    for key, label in labels.items():
        text = label.text()
        if text is None:
            continue
        trait = label_trait(key, text)
        if trait is None:
            label.warn(f"no trait: its name would be longer than {_LONGEST_TRAIT} characters")
        else:
            found.add(trait)
    return frozenset(found)
