"""NUMA alignment policies and allocation strategies of hosts."""

from __future__ import annotations

from collections.abc import Sequence

from placement.dialects.koordinator.profile import Profile
from placement.numa.policies import NumaPolicy, NumaStrategy

_SUFFIXES = ("PodLevel", "ContainerLevel")


def translate_topology_policy(entry: str, profile: Profile) -> NumaPolicy | None:
    """The policy that one entry of topologyPolicies stands for; None if it is not recognised.

    Plain, pod level and container level spellings of the three aligning policies are recognised, except
    `SingleNUMANodeContainerLevel` under `koord-scheduler`. Source: koordinator.md, "topologyPolicies".
    """
    if entry == "SingleNUMANodeContainerLevel" and profile is Profile.KOORD_SCHEDULER:
        return None
    plain = next((entry.removesuffix(suffix) for suffix in _SUFFIXES if entry.endswith(suffix)), entry)
    return NumaPolicy(plain) if plain in set(NumaPolicy) - {NumaPolicy.NONE} else None


def first_topology_policy(entries: Sequence[str], profile: Profile) -> NumaPolicy | None:
    """The policy of the first recognised entry of topologyPolicies; None if there is none."""
    translated = (translate_topology_policy(entry, profile) for entry in entries)
    return next((policy for policy in translated if policy is not None), None)


def label_strategy(label: str, profile: Profile) -> NumaStrategy | None:
    """The strategy a host's label stands for; None = not said, the cluster's setting applies.

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
