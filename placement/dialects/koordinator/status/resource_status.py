"""What a pod was given: the resource-status annotation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.resources import base_amount
from placement.kubernetes.field import Field
from placement.numa.amounts import NOTHING, NumaAmounts
from placement.numa.cpuset import CpuSet, format_cpu_list


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Logical CPUs of the pod's own, amounts by NUMA node, and pools of NUMA nodes, as (socket, NUMA id)."""

    cpus: CpuSet = frozenset()
    amounts: NumaAmounts = NOTHING
    pools: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was given that has to be remembered."""
        return not (self.cpus or self.amounts)


NOTHING_GIVEN = ResourceStatus()


def read_resource_status(annotation: Field) -> ResourceStatus:
    """The status of a resource-status annotation, absent or not; what does not parse is reported.

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


def _read_amounts(resources: Field) -> dict[str, int]:
    quantities = {name: amount.quantity() for name, amount in resources.members().items()}
    return {name: base_amount(name, amount) for name, amount in quantities.items() if amount is not None}


def status_document(status: ResourceStatus) -> Mapping[str, Any]:
    """The annotation of a status, NUMA nodes ascending; empty members are left out.

    Source: koordinator.md, "What is written".
    """
    members: dict[str, str | Sequence[Any]] = {
        "cpuset": format_cpu_list(status.cpus),
        "cpuSharedPools": [{"socket": socket, "node": numa} for socket, numa in status.pools],
        "numaNodeResources": [
            {"node": numa, "resources": {name: _quantity(name, amount) for name, amount in amounts.items()}}
            for numa, amounts in status.amounts.items()
        ],
    }
    return {key: member for key, member in members.items() if member}


def _quantity(resource: str, amount: int) -> str:
    if resource != "cpu":
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
