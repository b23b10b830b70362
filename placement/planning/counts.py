"""The counts of how many more requests fit, as answers show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.engine.search.capacity.capacity import HostRoom, Summary

CapacityCount = Summary[str]
"""The free capacity of some hosts together, with the classes by name."""
HostCount = HostRoom[str]
"""The free capacity of one host, with the classes by name."""


@dataclass(frozen=True, slots=True)
class KindCapacity:
    """How many more of one kind fit: in all, and on request by cluster, aggregate of roots and host."""

    total: CapacityCount
    clusters: Sequence[CapacityCount] | None = None
    aggregates: Sequence[CapacityCount] | None = None
    hosts: Sequence[HostCount] | None = None
    resources: Mapping[str, str] | None = None
    """The names that Kubernetes has for classes; None for queries."""
