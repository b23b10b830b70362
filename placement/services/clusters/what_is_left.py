"""What nodes as a whole have left, by their inventories and by those who are on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from placement.dialects.koordinator.resources import host_class
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.numa.host_score import HostTotals
from placement.scheduling.node_info import NodeTemplate
from placement.scheduling.node_offers import HOST, Place
from placement.storage.changes.node_parts import HostRecord


class WhatIsLeft:
    """What nodes have left as a whole; like ones on which nobody is share it."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[Mapping[str, int], HostTotals]] = {}

    def on(
        self,
        template: NodeTemplate,
        records: Sequence[HostRecord],
        pods: Sequence[RecordedPod],
        others: Mapping[Place, int],
    ) -> tuple[Mapping[str, int], HostTotals]:
        """The units of each class that nobody holds, and the totals for the score; only to be read."""
        if pods or others:
            return _unused(records), _totals(template, records, pods, others)
        key = (template, *((record.class_name, record.capacity, record.used) for record in records))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (_unused(records), _totals(template, records, (), {}))
        return found


def _unused(records: Sequence[HostRecord]) -> dict[str, int]:
    return {record.class_name: record.capacity - record.used for record in records}


def _totals(
    template: NodeTemplate,
    records: Sequence[HostRecord],
    pods: Sequence[RecordedPod],
    others: Mapping[Place, int],
) -> HostTotals:
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = defaultdict(int)
    for record in records:
        resource = template.imported.resource_names.get(record.class_name)
        if resource is not None:
            unit = host_class(resource).unit
            allocatable[resource] = record.capacity * unit
            requested[resource] += others.get(Place(HOST, record.class_name), 0) * unit
    for pod in pods:
        for resource, amount in pod.requests.items():
            requested[resource] += amount
    return HostTotals(allocatable, {name: amount for name, amount in requested.items() if amount})
