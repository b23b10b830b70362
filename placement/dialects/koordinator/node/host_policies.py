"""The policies of a host, from its labels, its NodeResourceTopology and kubelet."""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.bind_policy import HostBindPolicy, host_bind_policy
from placement.dialects.koordinator.node.kubelet import KubeletPolicy
from placement.dialects.koordinator.node.numa_policy import (
    first_topology_policy,
    label_strategy,
    translate_topology_policy,
)
from placement.dialects.koordinator.profile import Profile
from placement.kubernetes.field import Field
from placement.kubernetes.manifest import Manifest
from placement.numa.policies import NumaPolicy, NumaStrategy

DISTRIBUTE_OPTION = "distribute-cpus-across-numa"


@dataclass(frozen=True, slots=True)
class HostPolicies:
    """Effective policies; a NUMA policy or strategy of None is not said and left to the cluster's setting.

    `distributes_over_numa`: kubelet splits what needs several NUMA nodes evenly over them.
    """

    bind: HostBindPolicy = HostBindPolicy.NONE
    numa: NumaPolicy | None = None
    strategy: NumaStrategy | None = None
    distributes_over_numa: bool = False


def read_host_policies(
    node: Manifest, topology_policies: Field, kubelet: KubeletPolicy, profile: Profile
) -> HostPolicies:
    """The effective policies of a host; unknown and overruled values are warnings.

    Source: koordinator.md, "Keys on the node", "topologyPolicies", "Profiles".
    """
    reported = _read_topology_policies(topology_policies, profile)
    return HostPolicies(
        bind=_read_bind_policy(node.label(keys.CPU_BIND_POLICY), kubelet),
        numa=_read_numa_label(node, profile) or reported,
        strategy=_read_strategy(node.label(keys.NUMA_ALLOCATE_STRATEGY), profile),
        distributes_over_numa=profile is Profile.DESIGN and kubelet.has_option(DISTRIBUTE_OPTION),
    )


def _read_bind_policy(label: Field, kubelet: KubeletPolicy) -> HostBindPolicy:
    value = label.text() or ""
    policy = host_bind_policy(value, kubelet)
    if value and value not in set(HostBindPolicy):
        label.warn(f"unknown bind policy {value!r} counts as None")
    elif value == HostBindPolicy.SPREAD_BY_PCPUS and policy != value:
        label.warn("overruled by kubelet's option full-pcpus-only")
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
