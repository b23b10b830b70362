"""Zones of a NodeResourceTopology: what each NUMA node has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from placement.dialects.koordinator.resources import ResourceNames, base_amount, numa_class
from placement.kubernetes.field import Field
from placement.numa.consistency import MAX_ID

_NAME = re.compile(r"node-([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Zone:
    """The allocatable amounts of one NUMA node by Kubernetes resource name, as reported.

    Millicores for `cpu`, bytes or pieces otherwise; nothing is subtracted or multiplied.
    """

    numa: int
    amounts: Mapping[str, int]


def read_zones(zones: Field, names: ResourceNames) -> tuple[Zone, ...]:
    """The zones of type `Node` called `node-<N>`, ascending by N; others are skipped with a warning.

    Refused: NUMA nodes or resources listed twice, amounts that are no quantities or negative, resource names
    that cannot be told apart as classes, ids beyond what a topology may have.
    Source: koordinator.md, "Unallocatable CPUs", "NUMA amounts".
    """
    found: dict[int, Zone] = {}
    for zone in zones.elements():
        numa = _numa_id(zone)
        if numa is None:
            continue
        if numa in found:
            zone.member("name").refuse(f"NUMA node {numa} is listed twice")
        found[numa] = Zone(numa, _read_amounts(zone.member("resources"), names))
    return tuple(found[numa] for numa in sorted(found))


def _numa_id(zone: Field) -> int | None:
    kind, name = zone.member("type").text(), zone.member("name").text()
    match = _NAME.fullmatch(name or "")
    if kind != "Node" or match is None:
        zone.warn(f"skipped: only zones of type Node called node-<number> count, this is {kind} {name!r}")
        return None
    numa = int(match[1])
    if numa > MAX_ID:
        zone.member("name").refuse(f"{numa} is above {MAX_ID}")
        return None
    return numa


def _read_amounts(resources: Field, names: ResourceNames) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for entry in resources.elements():
        field = entry.member("name")
        resource, quantity = field.text(), entry.member("allocatable").quantity()
        if not names.admit(field, resource or "", numa_class(resource or "").name):
            continue
        if resource in amounts:
            field.refuse(f"{resource!r} is listed twice")
        elif resource is not None and quantity is not None:
            amounts[resource] = base_amount(resource, quantity)
    return amounts
