"""The policies of a host, by its labels, its NodeResourceTopology and kubelet, and what pods get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from placement.common.manifest import Field, Manifest, Profile
from placement.engine.numa.demand import NumaPolicy, NumaStrategy
from placement.pods.koordinator import keys
from placement.pods.koordinator.keys import KubeletPolicy

FULL_PCPUS_ONLY_OPTION = "full-pcpus-only"
_SUFFIXES = ("PodLevel", "ContainerLevel")
DISTRIBUTE_OPTION = "distribute-cpus-across-numa"


class HostBindPolicy(StrEnum):
    """A policy by which a host binds every pod that asks for CPUs; `NONE` leaves it to the pod."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


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


@dataclass(frozen=True, slots=True)
class HostPolicies:
    """The effective policies of a host; a NUMA policy or strategy of None is left to the cluster's setting.

    `distributes_over_numa`: kubelet splits what needs several NUMA nodes evenly over them.
    `whole_cores_only`: no CPU policies but FullPCPUs and NUMANodeLevel have an effect.
    """

    bind: HostBindPolicy = HostBindPolicy.NONE
    numa: NumaPolicy | None = None
    strategy: NumaStrategy | None = None
    distributes_over_numa: bool = False
    whole_cores_only: bool = False


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
