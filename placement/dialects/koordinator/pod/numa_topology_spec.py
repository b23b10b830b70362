"""How a pod wants to be aligned: the numa-topology-spec annotation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from placement.domain.explanation import Kind, Obstacle
from placement.kubernetes.field import Field
from placement.numa.policies import NumaExclusivity, NumaPolicy
from placement.numa.refusal import RefusalClass, Refused

POLICIES_DIFFER = "node(s) NUMA Topology policy not match"

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class NumaTopologySpec:
    """The NUMA policy a pod sets and the exclusivity it names; NONE where it says nothing."""

    policy: NumaPolicy = NumaPolicy.NONE
    exclusivity: NumaExclusivity = NumaExclusivity.NONE

    @property
    def effective_exclusivity(self) -> NumaExclusivity:
        """What is named, else required exclusivity for pods that set a policy of their own.

        Source: koordinator.md, "NUMA exclusivity".
        """
        if self.exclusivity is NumaExclusivity.NONE and self.policy is not NumaPolicy.NONE:
            return NumaExclusivity.REQUIRED
        return self.exclusivity


def read_numa_topology_spec(annotation: Field) -> NumaTopologySpec:
    """The spec of a numa-topology-spec annotation, absent or not; unknown policies are reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return NumaTopologySpec(
        _read_choice(parsed.member("numaTopologyPolicy"), NumaPolicy, NumaPolicy.NONE),
        _read_choice(parsed.member("singleNUMANodeExclusive"), NumaExclusivity, NumaExclusivity.NONE),
    )


def merged_numa_policy(host: NumaPolicy, pod: NumaPolicy) -> NumaPolicy:
    """The policy that host and pod agree on. Raises Refused if both set one and they differ.

    Source: koordinator.md, "Effective policy".
    """
    policies = {host, pod} - {NumaPolicy.NONE}
    if len(policies) > 1:
        raise Refused(POLICIES_DIFFER, status=RefusalClass.UNRESOLVABLE, obstacle=Obstacle(Kind.NUMA_POLICY))
    return next(iter(policies), NumaPolicy.NONE)


def _read_choice(field: Field, choices: type[_Choice], default: _Choice) -> _Choice:
    text = field.text() or default
    if text not in set(choices):
        field.complain(f"{text!r} is none of {', '.join(choice for choice in choices if choice)}")
        return default
    return choices(text)
