"""Annotations of a pod: what it wants of its CPUs, how it wants to be aligned, and what it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from placement.allocations.kubernetes_resources import base_amount
from placement.common.manifest import Field, ManifestReport
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.amounts import Amounts, NumaAmounts
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.demand import NumaExclusivity, NumaPolicy, PodRefused, RefusalClass
from placement.pods.model import NumaTopologySpec, ResourceSpec, ResourceStatus

DEFAULT = "Default"
CONSTRAINED_BURST = "ConstrainedBurst"

_REQUIRED = "requiredCPUBindPolicy"
_PREFERRED = "preferredCPUBindPolicy"
_EXCLUSIVE = "preferredCPUExclusivePolicy"
POLICIES_DIFFER = "node(s) NUMA Topology policy not match"
_Choice = TypeVar("_Choice", bound=StrEnum)


def read_resource_spec(annotation: Field) -> ResourceSpec:
    """Return the spec of a resource-spec annotation, absent or not; what does not parse is reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return ResourceSpec(
        required_bind=parsed.member(_REQUIRED).text() or "",
        preferred_bind=parsed.member(_PREFERRED).text() or "",
        exclusive=parsed.member(_EXCLUSIVE).text() or "",
        document=dict(parsed.mapping()),
    )


def completed_spec(spec: ResourceSpec, bind: str, strict: bool) -> Mapping[str, Any]:
    """Return the annotation after a pod was bound under a policy, with the policies that were only implied.

    Nothing changes if no policy applied. Source: koordinator.md, "What is written".
    """
    completed = dict(spec.document)
    if bind and strict and spec.required_bind in ("", DEFAULT):
        completed[_REQUIRED] = bind
    if bind and spec.preferred_bind == DEFAULT:
        completed[_PREFERRED] = bind
    if bind and not completed.get(_REQUIRED) and not completed.get(_PREFERRED):
        completed[_PREFERRED] = bind
    return completed


def read_numa_topology_spec(annotation: Field) -> NumaTopologySpec:
    """Return the spec of a numa-topology-spec annotation, absent or not; unknown policies are reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    return NumaTopologySpec(
        _read_choice(parsed.member("numaTopologyPolicy"), NumaPolicy, NumaPolicy.NONE),
        _read_choice(parsed.member("singleNUMANodeExclusive"), NumaExclusivity, NumaExclusivity.NONE),
    )


def merged_numa_policy(host: NumaPolicy, pod: NumaPolicy) -> NumaPolicy:
    """Return the policy that host and pod agree on. Raises PodRefused if both set one and they differ.

    Source: koordinator.md, "Effective policy".
    """
    policies = {host, pod} - {NumaPolicy.NONE}
    if len(policies) > 1:
        raise PodRefused(
            POLICIES_DIFFER, status=RefusalClass.UNRESOLVABLE, obstacle=Obstacle(ConditionKind.NUMA_POLICY)
        )
    return next(iter(policies), NumaPolicy.NONE)


def _read_choice(field: Field, choices: type[_Choice], default: _Choice) -> _Choice:
    text = field.text() or default
    if text not in set(choices):
        field.complain(f"{text!r} is none of {', '.join(choice for choice in choices if choice)}")
        return default
    return choices(text)


def read_resource_status(annotation: Field) -> ResourceStatus:
    """Return the status of a resource-status annotation, absent or not; what does not parse is reported.

    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    by_numa: dict[int, dict[str, int]] = {}
    for entry in parsed.member("numaNodeResources").elements():
        numa = entry.member("node").integer()
        amounts = _read_amounts(entry.member("resources"))
        if numa is not None and numa < 0:
            entry.member("node").complain(f"{numa} is negative")
        elif numa is not None:
            by_numa[numa] = {**by_numa.get(numa, {}), **amounts}
    return ResourceStatus(parsed.member("cpuset").cpu_list() or frozenset(), NumaAmounts(by_numa))


def read_told_pools(annotation: Field) -> tuple[int, ...]:
    """Return the NUMA nodes of the shared pools in a resource-status annotation, as far as it is readable.

    Source: koordinator.md, "CPU lists of containers".
    """
    entries = annotation.reported_to(ManifestReport()).json().member("cpuSharedPools").elements()
    numa_ids = (entry.member("node").integer() for entry in entries)
    return tuple(sorted({numa for numa in numa_ids if numa is not None}))


def _read_amounts(resources: Field) -> dict[str, int]:
    quantities = {name: amount.quantity() for name, amount in resources.members().items()}
    return {name: base_amount(name, amount) for name, amount in quantities.items() if amount is not None}


def status_document(status: ResourceStatus) -> Mapping[str, Any]:
    """Return the annotation of a status, NUMA nodes ascending; empty members are left out.

    Source: koordinator.md, "What is written".
    """
    members: dict[str, str | Sequence[Any]] = {
        "cpuset": format_cpu_list(status.cpus),
        "cpuSharedPools": [{"socket": socket, "node": numa} for socket, numa in status.pools],
        "numaNodeResources": [
            {"node": numa, "resources": quantities(amounts)} for numa, amounts in status.amounts.items()
        ],
    }
    return {key: member for key, member in members.items() if member}


def quantities(amounts: Amounts) -> dict[str, str]:
    """Return the amounts as Kubernetes writes them."""
    return {name: _quantity(name, amount) for name, amount in amounts.items()}


def _quantity(resource: str, amount: int) -> str:
    if resource != "cpu":
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
